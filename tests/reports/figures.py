"""Figures as texts: what they draw, without a pixel."""

import zlib
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from reports import page
from reports.page import html, ink

ROLES = {light: role for role, (light, _) in html.COLOURS.items()}
#: A line of more points than this is told by their sum.
POINTS_MAX = 12


def page_of(run: Path, decided: dict[str, Any], frames: Any) -> str:
    """The page of a run, its figures told as texts, without the part of its style that is a file; the names of its pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ink, "svg", told)
        patch.setattr(ink, "png", lambda figure: b"drawn")
        page.write_report(run, decided, frames)
    style = Path(html.__file__).with_name("page.css").read_text("utf-8")
    pictures = sorted(path.name for path in (run / page.FIGURES).iterdir() if path.read_bytes() == b"drawn")
    return "\n".join([(run / page.FILE).read_text("utf-8").replace(style, ""), *pictures])


@pytest.fixture
def figures_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have their figures as texts."""
    monkeypatch.setattr(ink, "svg", told)


class Teller(RendererBase):
    """Writes down each stroke, in pixels, with its colours by their roles. Letters are all of one width, whatever the font."""

    def __init__(self, figure: Figure) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.width, self.height = (float(size) for size in figure.bbox.size)

    def draw_path(self, gc: Any, path: Any, transform: Any, rgbFace: Any = None) -> None:  # noqa: N803
        self.lines.append(f"line {points(path, transform)} {look(gc, rgbFace)}")

    def draw_markers(self, gc: Any, marker_path: Any, marker_trans: Any, path: Any, trans: Any, rgbFace: Any = None) -> None:  # noqa: N803
        self.lines.append(f"marks {points(marker_path, marker_trans)} at {points(path, trans)} {look(gc, rgbFace)}")

    def draw_text(self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, *_: Any, **__: Any) -> None:
        self.lines.append(f"text {pixel(x)},{pixel(y)} {s!r} {prop.get_size():g} {prop.get_weight()} {look(gc, None)}")

    def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> tuple[float, float, float]:
        return 6.0 * len(s), 9.0, 2.0

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.width, self.height

    def points_to_pixels(self, points: Any) -> Any:
        return points * 1.5


def told(figure: Figure, name: str, words: str) -> str:
    """Its name, what it is said to show, and what it draws, a line for each stroke."""
    teller = Teller(figure)
    figure.draw(teller)
    return "\n".join([f"figure {name}, {words}: {pixel(teller.width)} x {pixel(teller.height)}", *teller.lines])


def pixel(value: float) -> str:
    return f"{value + 1e-4:.1f}"


def points(path: Any, transform: Any) -> str:
    found = [f"{pixel(x)},{pixel(y)}" for x, y in transform.transform(path.vertices)]
    text = " ".join(found)
    return text if len(found) <= POINTS_MAX else f"{len(found)} points {zlib.crc32(text.encode()):08x}"


def look(gc: Any, face: Any) -> str:
    """The colours of a stroke, its width, dashes, hatching and opacity."""
    hatch = f" hatch {gc.get_hatch()}" if gc.get_hatch() else ""
    fill = f" on {role(face)}" if face is not None else ""
    dashes = f" dashes {gc.get_dashes()[1]}" if gc.get_dashes()[1] is not None else ""
    return f"{role(gc.get_rgb())} {gc.get_linewidth():.2f} {gc.get_alpha():g}{dashes}{hatch}{fill}"


def role(colour: Any) -> str:
    return ROLES.get(to_hex(colour), to_hex(colour)) + ("" if len(colour) < 4 else f"/{colour[3]:g}")
