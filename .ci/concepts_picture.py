"""Draw docs/concepts.svg, when it is run: the states of a job and the calls that move it."""

from __future__ import annotations

from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "concepts.svg"
WIDTH, HEIGHT = 760, 330
#: A state, the left upper corner of its box, and its colour.
BOXES = {
    "blocked": (30, 40, "#e8eaf0"),
    "delayed": (30, 220, "#e8eaf0"),
    "waiting": (230, 130, "#dbe9fb"),
    "active": (440, 130, "#fdebc8"),
    "finished": (630, 40, "#d9f0dd"),
    "dead": (630, 220, "#f8dcd8"),
}
BOX_WIDTH, BOX_HEIGHT = 100, 44
#: The path of an arrow, what it is called, and where that stands.
ARROWS = [
    ("M 130 62 C 200 62 200 120 228 140", "the last job that it needs finishes", 140, 50, "start"),
    ("M 130 242 C 200 242 200 190 228 168", "promote", 150, 208, "middle"),
    ("M 332 142 L 436 142", "claim", 384, 134, "middle"),
    ("M 438 164 L 334 164", "release, reap", 384, 182, "middle"),
    ("M 542 140 C 580 130 590 80 627 66", "finish", 556, 92, "middle"),
    ("M 542 164 C 580 176 590 220 627 238", "bury", 604, 196, "middle"),
    ("M 480 176 C 470 290 280 300 134 254", "retry, after its back-off", 340, 302, "middle"),
    ("M 628 254 C 500 290 330 260 285 178", "requeue", 540, 288, "middle"),
]
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#20242c}.call{font-size:13px;fill:#3d4656}"
    "path{fill:none;stroke:#5b6577;stroke-width:1.5;marker-end:url(#end)}rect{stroke:#5b6577}"
)


def drawn() -> str:
    """The picture as SVG."""
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">',
        "<title>The states of a job, and the calls that move it</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><polygon points="0,0 8,4 0,8" fill="#5b6577"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff" style="stroke:none"/>',
    ]
    for path, call, x, y, anchor in ARROWS:
        rows += [
            f'<path d="{path}"/>',
            f'<text class="call" x="{x}" y="{y}" text-anchor="{anchor}">{call}</text>',
        ]
    for state, (x, y, colour) in BOXES.items():
        rows += [
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="{colour}"/>',
            f'<text x="{x + BOX_WIDTH // 2}" y="{y + 27}" text-anchor="middle">{state}</text>',
        ]
    rows += [
        '<text class="call" x="474" y="118" text-anchor="middle">leased: token, renewal</text>',
        '<text class="call" x="680" y="28" text-anchor="middle">tombstone</text>',
        "</svg>",
    ]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawn())
