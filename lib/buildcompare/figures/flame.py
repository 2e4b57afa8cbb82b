"""Draw a flame graph of two builds as SVG: widths are shares of the new build's profile, colours show changes."""

import html
from collections.abc import Iterator
from dataclasses import dataclass, field

from buildcompare.profiles.compare import mean_stacks
from buildcompare.profiles.stacks import Profile
from buildcompare.results.codes import SIDES, Pair
from buildcompare.text.sentences import say

ROW = 18  # Height of a frame, in pixels
MOST_FRAMES = 3_000
"""Maximum number of frames in the drawing. If a profile has more, the places of its smallest frames are left blank."""
LEAST_SHARE = 0.001
_STYLE = (
    ".flame { width: 100%; display: block; font-size: 11px; } .flame text { fill: var(--ink); pointer-events: none; }"
    " .flame rect { width: 100%; height: 100%; fill: var(--shade); stroke: var(--paper); }"
    " .flame .grew .change { fill: var(--new); } .flame .shrank .change { fill: var(--base); }"
    " .flame .match rect { stroke: var(--ink); stroke-width: 3; }"
)


@dataclass
class _Node:
    name: str
    depth: int
    shares: dict[str, float] = field(default_factory=lambda: {"base": 0.0, "new": 0.0})
    below: dict[str, "_Node"] = field(default_factory=dict)

    def walk(self, least: float, start: float = 0.0) -> Iterator[tuple["_Node", float]]:
        """Yield this node and its descendants, with left edges (0 to 1); skip shares below `least` in both builds."""
        yield self, start
        for each in sorted(self.below.values(), key=lambda node: node.name):
            if max(each.shares.values()) >= least:
                yield from each.walk(least, start)
            start += each.shares["new"]


def flame_graph(profiles: Pair[list[Profile]], labels: Pair[str], *, name: str) -> str:
    """Draw the flame graph as an HTML element; the script ``flame.js`` makes it zoomable.

    `profiles` has at least one profile of each build; the graph compares the means. `name` says what was profiled.
    """
    root = _Node(say("figures", "flame_root"), 0, {"base": 1.0, "new": 1.0})
    for side in SIDES:
        for stack, share in mean_stacks(profiles[side]).items():
            node = root
            for frame in stack:
                node = node.below.setdefault(frame, _Node(frame, node.depth + 1))
                node.shares[side] += share
    least, nodes = LEAST_SHARE, list(root.walk(LEAST_SHARE))
    while len(nodes) > MOST_FRAMES:
        least *= 2.0
        nodes = list(root.walk(least))
    largest = max((abs(node.shares["new"] - node.shares["base"]) for node, _ in nodes), default=0.0) or 1.0
    frames = "".join(_frame(node, start, largest, labels) for node, start in nodes)
    depth = max(node.depth for node, _ in nodes)
    size = f'height="{(depth + 1) * ROW}" data-depth="{depth}"'
    alt = html.escape(say("figures", "flame_alt", name, labels), quote=True)
    names = "".join(f' {side}="{html.escape(labels[side], quote=True)}"' for side in SIDES)
    svg = f'<svg class="flame" role="img" aria-label="{alt}" {size}><style>{_STYLE}</style>{frames}</svg>'
    return f"<build-flame{names}>{svg}</build-flame>"


def _frame(node: _Node, start: float, largest: float, labels: Pair[str]) -> str:
    base, new = node.shares["base"], node.shares["new"]
    text, title = html.escape(node.name), html.escape(say("figures", "flame_frame", node.name, node.shares, labels))
    kind = "grew" if new > base else "shrank"
    shade = f'<rect class="change" fill-opacity="{abs(new - base) / largest * 0.6:.2f}"/>'
    place = f'x="{start:.4%}" y="{node.depth * ROW}" width="{new:.4%}" height="{ROW - 1}"'
    data = f'data-base="{base:.6f}" data-new="{new:.6f}" data-depth="{node.depth}"'
    inside = f'<title>{title}</title><rect/>{shade}<text x="3" y="12">{text}</text>'
    return f'<svg class="{kind}" {place} {data}>{inside}</svg>'
