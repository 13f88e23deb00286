"""Colours and sizes of figures, and their output as SVG for the page and PNG for a file.

A figure is drawn once, in the light colours. On the page each colour becomes a variable of the style sheet, so that the same
figure also works in dark mode.
"""

from __future__ import annotations

import io
import logging
import re
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from reports.page.html import COLOURS

INK, SOFT, GRID, PAPER, BAND, EDGE = (COLOURS[name][0] for name in ("ink", "soft", "grid", "paper", "band", "edge"))
BLUE, VERMILLION, GREEN, PURPLE = (COLOURS[name][0] for name in ("blue", "vermillion", "green", "purple"))
SKY, AMBER, GREY, OTHER = (COLOURS[name][0] for name in ("sky", "amber", "grey", "other"))

#: Width of a figure on the page, in inches; a point is about 1.4 pixels there.
WIDTH_IN = 10.0
DPI = 110

SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": INK,
    # A job id with two dollar signs must not be rendered as a formula.
    "text.parse_math": False,
    "axes.edgecolor": GRID,
    "axes.labelcolor": SOFT,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "xtick.labelcolor": SOFT,
    "ytick.color": GRID,
    "ytick.labelcolor": SOFT,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.5,
    "lines.solid_joinstyle": "round",
    "hatch.linewidth": 0.8,
    "svg.fonttype": "path",
    "svg.hashsalt": "ironclaim",
    "path.simplify": True,
}

#: Maximum length of a text in a figure.
LABEL_MAX = 48


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the settings of all figures while the block runs. Warnings about characters missing from a font are suppressed."""
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        yield


def figure(height_in: float) -> Figure:
    """An empty figure of the page's width."""
    return Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, facecolor="none")


def margins(drawn: Figure, *, left: float, right: float, top: float, bottom: float, **more: float) -> None:
    """Margins in inches, so that they do not grow with the figure; `hspace` and `wspace` are matplotlib's own."""
    height_in = drawn.get_figheight()
    drawn.subplots_adjust(left / WIDTH_IN, bottom / height_in, 1 - right / WIDTH_IN, 1 - top / height_in, **more)


def logarithmic(panel: Axes) -> None:
    """Let the vertical axis be logarithmic, with plain numbers."""
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def legend(drawn: Figure, *panels: Axes) -> None:
    """A legend in one line at the top of the figure, for the labels of its panels."""
    keyed = [pair for panel in panels for pair in zip(*panel.get_legend_handles_labels(), strict=True)]
    once = {label: handle for handle, label in reversed(keyed)}
    labels = list(dict.fromkeys(label for _, label in keyed))
    handles = [once[label] for label in labels]
    place: Any = {"loc": "upper left", "bbox_to_anchor": (0.045, 1.0), "handlelength": 1.6, "columnspacing": 1.6}
    drawn.legend(handles, labels, ncols=len(labels) or 1, **place)


def plain(text: object) -> str:
    """A text for use in a figure: control characters escaped, cut to `LABEL_MAX`."""
    shown = "".join(char if unicodedata.category(char)[0] != "C" else ascii(char)[1:-1] for char in str(text))
    return shown if len(shown) <= LABEL_MAX else shown[: LABEL_MAX - 1] + "…"


def png(drawn: Figure) -> bytes:
    """The figure as PNG on white."""
    out = io.BytesIO()
    drawn.savefig(out, format="png", facecolor=PAPER)
    return out.getvalue()


def svg(drawn: Figure, name: str, alt: str) -> str:
    """The figure as an SVG element of an HTML page. Its ids begin with `name`; `alt` must already be escaped."""
    out = io.StringIO()
    drawn.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = re.sub(r"<!--.*?-->\s*|<metadata>.*?</metadata>\s*", "", out.getvalue(), flags=re.S)
    body = text[text.index("<svg") :]
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    for role, (light, _) in COLOURS.items():
        body = re.sub(rf"\b(fill|stroke): {light}\b", rf"\1: var(--{role})", body)
    head, _, rest = body.partition(">")
    box = re.findall(r'viewBox="([^"]*)"', head)[0]
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {spaces} viewBox="{box}" role="img" aria-label="{alt}">{rest}'
