"""A chart as PNG, drawn by Pillow (the extra `plot`). Called by `hw plot -o FILE.png`."""

import io
from typing import Any

from headway.model.errors import HeadwayError
from headway.views.plot.chart_scene import PAPER, Area, Scene, Stroke

_SHARP = 2  # pixels of the picture for one of the scene
_FINE = 2  # drawn so much larger and scaled down, so that lines are smooth
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


def png(scene: Scene) -> bytes:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise HeadwayError(
            "PNG is drawn by Pillow, which is not installed",
            "pip install 'headway[plot]'; or -o FILE.svg, which needs nothing",
        ) from None
    scale = _SHARP * _FINE
    size = (scene.width * scale, scene.height * scale)
    image = Image.new("RGB", size, PAPER)
    for shape in scene.shapes:
        if isinstance(shape, Area):
            layer = Image.new("RGBA", size)
            alpha = round(255 * shape.opacity)
            flat = [(x * scale, y * scale) for x, y in shape.points]
            ImageDraw.Draw(layer).polygon(flat, fill=_rgb(shape.color, alpha))
            image.paste(layer, mask=layer)
    draw = ImageDraw.Draw(image)
    for shape in scene.shapes:
        if isinstance(shape, Stroke):
            _stroke(draw, shape, scale)
    image = image.resize((scene.width * _SHARP, scene.height * _SHARP), Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(image)
    for shape in scene.shapes:
        if not isinstance(shape, Stroke | Area):
            font: Any = ImageFont.load_default(shape.size * _SHARP)
            place = (shape.x * _SHARP, shape.y * _SHARP)
            draw.text(place, shape.text, shape.color, font, anchor=_ANCHORS[shape.anchor])
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _rgb(color: str, alpha: int = 255) -> tuple[int, int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16), alpha


def _stroke(draw: Any, shape: Stroke, scale: int) -> None:
    red, green, blue, _ = _rgb(shape.color)
    # on white paper, a line that is half transparent is a lighter line
    light = tuple(round(255 - (255 - part) * shape.opacity) for part in (red, green, blue))
    flat = [(x * scale, y * scale) for x, y in shape.points]
    if len(set(flat)) == 1:
        x, y = flat[0]
        draw.ellipse((x - 5, y - 5, x + 5, y + 5), fill=light)
        return
    draw.line(flat, fill=light, width=max(1, round(shape.width * scale)), joint="curve")
