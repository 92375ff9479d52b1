"use strict";
(function () {
  var data = JSON.parse(document.getElementById("data").textContent);
  var report = document.getElementById("report");
  var WIDE = 1160, HIGH = 380, LEFT = 70, RIGHT = 10, TOP = 70, BOTTOM = 28;
  var PAUSES = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400]; // seconds between two marks
  var SVG = "http://www.w3.org/2000/svg";
  var chosen = null; // colour of the process that is looked at

  // Words of jobs and processes only ever become text nodes.
  function add(parent, tag, text, attributes) {
    var made = document.createElement(tag);
    if (text !== undefined && text !== null) { made.textContent = text; }
    return finish(parent, made, attributes);
  }
  function draw(parent, tag, attributes, text) {
    var made = document.createElementNS(SVG, tag);
    if (text !== undefined) { made.textContent = text; }
    return finish(parent, made, attributes);
  }
  function finish(parent, made, attributes) {
    Object.keys(attributes || {}).forEach(function (name) { made.setAttribute(name, attributes[name]); });
    parent.appendChild(made);
    return made;
  }
  function colour(number) {
    return number < 0 ? "hsl(0 0% 60%)" : "hsl(" + (number * 137.5) % 360 + " 58% " + (46 + (number % 3) * 8) + "%)";
  }
  function amount(value, unit) {
    if (value === null || value === undefined) { return "–"; }
    var names = ["", "Ki", "Mi", "Gi", "Ti"], step = 0;
    if (unit.charAt(0) === "B") {
      while (value >= 1024 && step < 4) { value /= 1024; step += 1; }
      return value.toFixed(step ? 1 : 0) + " " + names[step] + unit;
    }
    return (value >= 100 || value === Math.round(value) ? value.toFixed(0) : value.toFixed(1)) + (unit ? " " + unit : "");
  }
  function round(value, base) { // up to 1, 2 or 5 times a power of ten; for bytes to a power of two
    if (base === 2) { return Math.pow(2, Math.ceil(Math.log2(value))); }
    var power = Math.pow(10, Math.floor(Math.log10(value)));
    return [1, 2, 5, 10].filter(function (one) { return one * power >= value * 0.999; })[0] * power;
  }
  function clock(seconds) {
    var whole = Math.round(seconds), two = function (n) { return (n < 10 ? "0" : "") + n; };
    var days = Math.floor(whole / 86400);
    var rest = two(Math.floor(whole % 3600 / 60)) + ":" + two(whole % 60);
    return (days ? days + "d " : "") + (whole >= 3600 ? Math.floor(whole % 86400 / 3600) + ":" : "") + rest;
  }

  add(report, "h1", data.id);
  var begun = new Date(data.begin * 1000).toISOString().replace("T", " ").slice(0, 19);
  add(report, "div", data.state + " · from " + begun + " UTC · " + clock(data.length), { "class": "dim" });
  add(report, "code", data.command);
  var tabs = add(report, "nav");
  var place = add(report, "div");
  var now = add(report, "div", "", { id: "now", "class": "value dim" });

  function show(chart) {
    Array.prototype.forEach.call(tabs.children, function (button) {
      button.setAttribute("aria-pressed", String(button.dataset.key === chart.key));
    });
    place.replaceChildren();
    now.textContent = "Point at the chart to read it; click a coloured row below to see it alone.";
    var count = chart.series[0].values.length;
    var totals = chart.series[0].values.map(function (_, i) {
      return chart.series.reduce(function (sum, one) { return sum + one.values[i]; }, 0);
    });
    var base = chart.unit.charAt(0) === "B" ? 2 : 10;
    var most = Math.max.apply(null, totals) || 1, rise = round(most / 4, base);
    most = Math.ceil(most / rise) * rise;
    var x = function (i) { return LEFT + i * (WIDE - LEFT - RIGHT) / Math.max(count - 1, 1); };
    var y = function (value) { return HIGH - BOTTOM - value / most * (HIGH - TOP - BOTTOM); };
    var svg = draw(place, "svg", { viewBox: "0 0 " + WIDE + " " + HIGH, role: "img", "aria-label": chart.title });
    for (var level = 0; level <= most; level += rise) {
      draw(svg, "line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(level), y2: y(level), "class": "grid" });
      draw(svg, "text", { x: LEFT - 6, y: y(level) + 4, "text-anchor": "end" }, amount(level, chart.unit));
    }
    var pause = PAUSES.filter(function (one) { return one >= data.length / 8; })[0] || Math.ceil(data.length / 691200) * 86400;
    for (var second = 0; second <= data.length; second += pause) {
      var at = LEFT + (WIDE - LEFT - RIGHT) * second / (data.length || 1);
      draw(svg, "text", { x: at, y: HIGH - 8, "text-anchor": second ? at > WIDE - 30 ? "end" : "middle" : "start" }, clock(second));
    }
    var floor = totals.map(function () { return 0; });
    chart.series.forEach(function (one) {
      var up = [], down = [];
      one.values.forEach(function (value, i) {
        down.push(x(i).toFixed(1) + " " + y(floor[i]).toFixed(1));
        floor[i] += value;
        up.push(x(i).toFixed(1) + " " + y(floor[i]).toFixed(1));
      });
      var off = chosen !== null && chosen !== one.colour;
      var path = draw(svg, "path", {
        d: "M" + up.join("L") + "L" + down.reverse().join("L") + "Z", fill: colour(one.colour), "class": off ? "off" : ""
      });
      draw(path, "title", {}, one.label);
    });
    var taken = [];
    data.checkpoints.forEach(function (mark) {
      var across = LEFT + mark.at / (data.length || 1) * (WIDE - LEFT - RIGHT);
      if (across < LEFT - 1 || across > WIDE - RIGHT + 1) { return; }
      draw(svg, "line", { x1: across, x2: across, y1: TOP - 6, y2: HIGH - BOTTOM, "class": "mark" });
      var crowded = taken.some(function (other) { return Math.abs(other - across) < 11; });
      var words = mark.label + (mark.whose ? " (" + mark.whose + ")" : "");
      if (crowded) { return; }
      taken.push(across);
      draw(svg, "text", {
        x: across, y: TOP - 10, "class": "said", transform: "rotate(-35 " + across + " " + (TOP - 10) + ")"
      }, words.length > 24 ? words.slice(0, 23) + "…" : words);
    });
    var here = draw(svg, "line", { y1: TOP, y2: HIGH - BOTTOM, x1: -9, x2: -9, "class": "here" });
    svg.addEventListener("mousemove", function (event) {
      var box = svg.getBoundingClientRect();
      var inside = (event.clientX - box.left) / box.width * WIDE;
      var i = Math.round((inside - LEFT) / (WIDE - LEFT - RIGHT) * (count - 1));
      if (i < 0 || i >= count) { return; }
      here.setAttribute("x1", x(i));
      here.setAttribute("x2", x(i));
      var parts = chart.series.filter(function (one) { return one.values[i] > 0; });
      parts.sort(function (a, b) { return b.values[i] - a.values[i]; });
      now.textContent = clock(data.length * i / Math.max(count - 1, 1)) + "  in all " + amount(totals[i], chart.unit) + "\n" +
        parts.slice(0, 6).map(function (one) { return one.label + " " + amount(one.values[i], chart.unit); }).join(" · ");
    });
  }

  var open = data.charts[0];
  data.charts.forEach(function (chart) {
    var button = add(tabs, "button", chart.title, { type: "button", "data-key": chart.key });
    button.addEventListener("click", function () { open = chart; show(chart); });
  });
  if (open) { show(open); } else { now.textContent = "There are no samples."; }

  add(report, "h2", "Processes");
  var table = add(report, "table");
  var head = add(add(table, "thead"), "tr");
  ["", "cpu or load", "max", "peak memory", "lived"].forEach(function (title) { add(head, "th", title); });
  var body = add(table, "tbody");
  data.tree.forEach(function (row) {
    var has = row.colour !== null && row.colour !== undefined;
    var line = add(body, "tr", null, has ? { "data-colour": row.colour } : {});
    var first = add(line, "td");
    first.style.paddingLeft = row.depth * 18 + "px";
    if (has) {
      var swatch = draw(first, "svg", { "class": "swatch", viewBox: "0 0 10 10" });
      draw(swatch, "rect", { width: 10, height: 10, rx: 2, fill: colour(row.colour) });
      line.addEventListener("click", function () {
        chosen = chosen === row.colour ? null : row.colour;
        if (open) { show(open); }
      });
    }
    first.appendChild(document.createTextNode(row.label));
    [amount(row.cpu, "%"), amount(row.cpu_max, "%"), amount(row.memory_max, "B"), clock(row.seconds || 0)]
      .forEach(function (text) { add(line, "td", text); });
  });
  if (data.checkpoints.length) {
    add(report, "h2", "Checkpoints");
    var list = add(add(report, "table"), "tbody");
    data.checkpoints.forEach(function (mark) {
      var line = add(list, "tr");
      add(line, "td", mark.label);
      add(line, "td", mark.whose);
      add(line, "td", clock(Math.max(mark.at, 0)));
    });
  }
})();
