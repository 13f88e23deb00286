"""The colours of page and figures, light and dark, and the style sheet that defines them.

The hues are those of Okabe and Ito, which are distinguishable with any colour vision; two are darkened so that text in them is
readable. No information is given by colour alone.
"""

from __future__ import annotations

from pathlib import Path

#: Role -> its light and its dark colour. The light ones must all differ, because in an SVG they identify the role.
COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#1b1f24", "#e6edf3"),
    "soft": ("#57606a", "#9da7b3"),
    "grid": ("#d8dee4", "#30363d"),
    "paper": ("#ffffff", "#151b23"),
    "band": ("#f6e7c8", "#43381f"),
    "edge": ("#b98a2f", "#c79a45"),
    "blue": ("#0072b2", "#5ab4f0"),
    "vermillion": ("#c04e00", "#ff8f4d"),
    "green": ("#00805d", "#3fcf9f"),
    "purple": ("#aa4499", "#e08fd0"),
    "sky": ("#56b4e9", "#8fd0f5"),
    "amber": ("#e69f00", "#f2b84b"),
    "grey": ("#8c959f", "#7d8590"),
    "other": ("#c3cbd3", "#444c56"),
}


def style_sheet() -> str:
    """The style sheet of the page, in which every colour is a variable. Printed pages always use the light colours."""
    light, dark = (" ".join(f"--{role}: {pair[place]};" for role, pair in COLOURS.items()) for place in (0, 1))
    schemes = (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
    return schemes + Path(__file__).with_name("page.css").read_text("utf-8")
