"""A chart as SVG, and as a page around it that opens offline. Pure; foreign words go in escaped."""

import html

from headway.views.plot.chart_scene import PAPER, Area, Scene, Stroke


def svg(scene: Scene) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {scene.width} {scene.height}" '
        f'width="{scene.width}" height="{scene.height}" font-family="system-ui, sans-serif">',
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
    ]
    for shape in scene.shapes:
        if isinstance(shape, Stroke):
            parts.append(_stroke(shape))
        elif isinstance(shape, Area):
            points = " ".join(f"{x:g},{y:g}" for x, y in shape.points)
            parts.append(
                f'<polygon points="{points}" fill="{shape.color}" fill-opacity="{shape.opacity}"/>'
            )
        else:
            parts.append(
                f'<text x="{shape.x:g}" y="{shape.y:g}" font-size="{shape.size}" fill="{shape.color}" '
                f'text-anchor="{shape.anchor}">{html.escape(shape.text)}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


def _stroke(shape: Stroke) -> str:
    points = " ".join(f"{x:g},{y:g}" for x, y in shape.points)
    dash = ' stroke-dasharray="5 3"' if shape.dashed else ""
    cap = ""
    if len(set(shape.points)) == 1:  # a single point would be invisible
        x, y = shape.points[0]
        return f'<circle cx="{x:g}" cy="{y:g}" r="2.5" fill="{shape.color}"/>'
    title = f"<title>{html.escape(shape.title)}</title>" if shape.title else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{shape.color}" stroke-width="{shape.width:g}" '
        f'stroke-opacity="{shape.opacity:g}" stroke-linejoin="round"{dash}{cap}>{title}</polyline>'
    )


def page(scene: Scene, title: str) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>svg{{max-width:100%;height:auto}}</style>\n</head>\n<body>\n"
        f"{svg(scene)}</body>\n</html>\n"
    )
