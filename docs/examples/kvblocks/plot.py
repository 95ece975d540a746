# SPDX-License-Identifier: Apache-2.0
"""Draws bytes over time with gaps as SVG."""

from html import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 320, 70, 40, 50
STEP_S = 0.002


def rates(arrived):
    """(time, MB/s) for each STEP_S, from samples of a counter."""
    out, i, begin = [], 0, arrived[0][0]
    for k in range(int((arrived[-1][0] - begin) / STEP_S)):
        first, end = arrived[i][1], begin + (k + 1) * STEP_S
        while i + 1 < len(arrived) and arrived[i + 1][0] <= end:
            i += 1
        out.append((k * STEP_S, (arrived[i][1] - first) / STEP_S / 1e6))
    return out


def draw(arrived, switches):
    points = rates(arrived) or [(0, 0)]
    begin, span = arrived[0][0], max(points[-1][0], STEP_S)
    top = max(r for _, r in points) or 1

    def x(t):
        return LEFT + (WIDTH - LEFT - 20) * t / span

    def y(rate):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / top

    gaps = [(t - begin, g / 1e9, text) for t, g, text in switches if g > 0]
    longest = max((g for _, g, _ in gaps), default=0)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">Bytes that arrived, MB/s; gaps of lanes shaded, the longest '
        f"{longest * 1e3:.1f} ms</text>",
    ]
    for end, gap, text in gaps:
        left = x(max(end - gap, 0))
        out.append(
            f'<rect x="{left:.1f}" y="{TOP}" width="{max(x(end) - left, 1):.1f}" height="{HEIGHT - TOP - BOTTOM}" '
            f'fill="#d62728" fill-opacity="0.2"><title>{escape(text)}: {gap * 1e3:.3f} ms</title></rect>'
        )
    line = " ".join(f"{x(t):.1f},{y(r):.1f}" for t, r in points)
    out.append(f'<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>')
    out.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - 20}" fill="none" stroke="black"/>')
    for i in range(5):
        out.append(f'<text x="{LEFT - 8}" y="{y(top * i / 4) + 4:.1f}" text-anchor="end">{top * i / 4:.0f}</text>')
        out.append(f'<text x="{x(span * i / 4):.1f}" y="{HEIGHT - 30}" text-anchor="middle">{span * i / 4:.2f}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 10}" text-anchor="middle">seconds</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
