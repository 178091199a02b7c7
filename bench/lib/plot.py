"""Bars as SVG, for a light and for a dark page: of ratios, or of values where these have the targets; and of values that have parts."""

from xml.sax.saxutils import escape

from ledger import target_of

THEMES = {
    "light": {"page": "#ffffff", "text": "#1f2328", "faint": "#d0d7de", "bar": "#3b76af", "best": "#c2410c", "target": "#1f2328"},
    "dark": {"page": "#0d1117", "text": "#e6edf3", "faint": "#30363d", "bar": "#5b9bd5", "best": "#f0a35e", "target": "#e6edf3"},
}
WIDTH, ROW, TOP, RIGHT = 860, 24, 58, 70
LETTER = 6.3  # the mean width of a letter of 12 px
PARTS = ("bar", "best")  # the colors of the parts of a bar
STEPS = tuple(digit * 10.0**power for power in range(-2, 7) for digit in (1, 2, 5))


def bars(title, rows, theme):
    """`rows`: (line of the ledger, the best line or None). A bar for each, a mark for the best, and one for a target."""
    field, unit = shown([line for line, _ in rows])
    marks = [(line[field], best[field] if best else None, target_of_field(line, field)) for line, best in rows]
    most = max(value for row in marks for value in row if value is not None)
    frame = Frame(title, unit, [line["case"] for line, _ in rows], most, THEMES[theme])
    entries = (("bar", 12, f"newest {unit}"), ("best", 3, "best of the ledger"), ("target", 3, "target"))
    return frame.picture(entries, (bar(frame, number, values) for number, values in enumerate(marks)))


def stacks(title, unit, rows, names, theme):
    """`rows`: (label, values, together), `names`: of the values. A bar for each, with a part for each value, and what they make together, which
    is not their sum where each is a median."""
    frame = Frame(title, unit, [label for label, *_ in rows], max(sum(values) for _, values, _ in rows), THEMES[theme])
    return frame.picture([(color, 12, name) for color, name in zip(PARTS, names)],
                         (stack(frame, number, values, together) for number, (_, values, together) in enumerate(rows)))


def number(value):
    """Three digits, and all before the point."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def at(place):
    """Tenths of a pixel, where it is not a whole one anyway."""
    return place if isinstance(place, int) else f"{place:.1f}"


class Frame:
    """What bars stand in: their labels, and the scale."""

    def __init__(self, title, unit, labels, most, colors):
        self.title, self.unit, self.labels, self.most, self.colors = title, unit, labels, most, colors
        self.left = round(max(map(len, labels)) * LETTER) + 20
        self.scale = (WIDTH - self.left - RIGHT) / (most or 1)
        self.height = TOP + ROW * len(labels) + 12

    def picture(self, entries, bars_of_rows):
        """`entries` of the legend: (color, width, text)."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height}" viewBox="0 0 {WIDTH} {self.height}" role="img" '
            'font-family="sans-serif" font-size="12">',
            f"<title>{escape(self.title)}: {self.unit}</title>",
            f'<rect width="{WIDTH}" height="{self.height}" fill="{self.colors["page"]}"/>',
            *self._legend(entries), *self._grid()]
        for number, (label, drawn) in enumerate(zip(self.labels, bars_of_rows)):
            parts.append(self.text(self.left - 8, TOP + number * ROW + 15, label, ' text-anchor="end"'))
            parts += drawn
        return "\n".join([*parts, "</svg>"]) + "\n"

    def text(self, x, y, text, more=""):
        return f'<text x="{at(x)}" y="{y}"{more} fill="{self.colors["text"]}">{escape(text)}</text>'

    def box(self, x, y, width, height, color):
        return f'<rect x="{at(x)}" y="{y}" width="{at(width)}" height="{height}" fill="{self.colors[color]}"/>'

    def label(self, x, row, value):
        """Beside the end of a bar."""
        return self.text(x + 8, TOP + row * ROW + 15, number(value))

    def _legend(self, entries):
        x = self.left
        yield self.text(8, 18, self.title, ' font-weight="bold"')
        for color, width, text in entries:
            yield self.box(x, 8, width, 12, color)
            yield self.text(x + width + 6, 18, text)
            x += width + 26 + round(len(text) * LETTER)

    def _grid(self):
        step = next((step for step in STEPS if self.most / step <= 6), STEPS[-1])
        for line in range(int(self.most / step) + 1):
            x = self.left + line * step * self.scale
            yield f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{self.height - 8}" stroke="{self.colors["faint"]}"/>'
            yield self.text(x, TOP - 14, f"{line * step:,.6g}", ' text-anchor="middle"')


def shown(lines):
    """(field, what it is called)"""
    if any(line["ratio"] is None for line in lines):
        return "value", lines[0]["unit"]
    of_ratios = [target[0] for target in map(target_of, lines) if target]
    units = {line["unit"] for line in lines}
    return ("value", units.pop()) if of_ratios and not any(of_ratios) and len(units) == 1 else ("ratio", "ratio")


def target_of_field(line, field):
    target = target_of(line)
    return target[2] if target and target[0] == (field == "ratio") else None


def bar(frame, row, values):
    y = TOP + row * ROW
    length, best, wanted = (value and value * frame.scale for value in values)
    yield frame.box(frame.left, y + 4, length, 14, "bar")
    for where, color in ((wanted, "target"), (best, "best")):
        if where is not None:
            yield frame.box(frame.left + where - 1.5, y + 1, 3, 20, color)
    yield frame.label(frame.left + max(part for part in (length, best, wanted) if part is not None), row, values[0])


def stack(frame, row, values, together):
    x = frame.left
    for color, value in zip(PARTS, values):
        if value > 0:
            yield frame.box(x, TOP + row * ROW + 4, value * frame.scale, 14, color)
        x += value * frame.scale
    yield frame.label(x, row, together)
