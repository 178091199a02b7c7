"""Bars of ratios as SVG, for a light and for a dark page; of values, where these have the targets."""

from xml.sax.saxutils import escape

from ledger import target_of

THEMES = {
    "light": {"page": "#ffffff", "text": "#1f2328", "faint": "#d0d7de", "bar": "#3b76af", "best": "#c2410c", "target": "#1f2328"},
    "dark": {"page": "#0d1117", "text": "#e6edf3", "faint": "#30363d", "bar": "#5b9bd5", "best": "#f0a35e", "target": "#e6edf3"},
}
WIDTH, ROW, TOP, RIGHT = 860, 24, 58, 70
LETTER = 6.3  # the mean width of a letter of 12 px
STEPS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def bars(title, rows, theme):
    """`rows`: (line of the ledger, the best line or None). A bar for each, a mark for the best, and one for a target."""
    field, unit = shown([line for line, _ in rows])
    colors = THEMES[theme]
    left = round(max(len(line["case"]) for line, _ in rows) * LETTER) + 20
    marks = [(line[field], best[field] if best else None, target_of_field(line, field)) for line, best in rows]
    most = max(value for row in marks for value in row if value is not None)
    step = next((step for step in STEPS if most / step <= 6), STEPS[-1])
    scale = (WIDTH - left - RIGHT) / (most or 1)
    height = TOP + ROW * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}: {unit}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="{colors["page"]}"/>',
        *legend(title, unit, left, colors), *grid(step, most, left, scale, height, colors)]
    for number, ((line, _), values) in enumerate(zip(rows, marks)):
        parts += bar(line["case"], TOP + number * ROW, left, [value and value * scale for value in values], values[0], colors)
    return "\n".join([*parts, "</svg>"]) + "\n"


def shown(lines):
    """(field, what it is called)"""
    of_ratios = [target[0] for target in map(target_of, lines) if target]
    units = {line["unit"] for line in lines}
    return ("value", units.pop()) if of_ratios and not any(of_ratios) and len(units) == 1 else ("ratio", "ratio")


def target_of_field(line, field):
    target = target_of(line)
    return target[2] if target and target[0] == (field == "ratio") else None


def legend(title, unit, left, colors):
    x = left
    yield f'<text x="8" y="18" font-weight="bold" fill="{colors["text"]}">{escape(title)}</text>'
    for name, width in (("bar", 12), ("best", 3), ("target", 3)):
        text = {"bar": f"newest {unit}", "best": "best of the ledger", "target": "target"}[name]
        yield f'<rect x="{x}" y="8" width="{width}" height="12" fill="{colors[name]}"/>'
        yield f'<text x="{x + width + 6}" y="18" fill="{colors["text"]}">{text}</text>'
        x += width + 26 + round(len(text) * LETTER)


def grid(step, most, left, scale, height, colors):
    for number in range(int(most / step) + 1):
        x = left + number * step * scale
        yield f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 8}" stroke="{colors["faint"]}"/>'
        yield f'<text x="{x:.1f}" y="{TOP - 14}" text-anchor="middle" fill="{colors["text"]}">{number * step:g}</text>'


def bar(case, y, left, lengths, value, colors):
    length, best, wanted = lengths
    yield f'<text x="{left - 8}" y="{y + 15}" text-anchor="end" fill="{colors["text"]}">{escape(case)}</text>'
    yield f'<rect x="{left}" y="{y + 4}" width="{length:.1f}" height="14" fill="{colors["bar"]}"/>'
    for where, color in ((wanted, "target"), (best, "best")):
        if where is not None:
            yield f'<rect x="{left + where - 1.5:.1f}" y="{y + 1}" width="3" height="20" fill="{colors[color]}"/>'
    end = left + max(part for part in lengths if part is not None) + 8
    yield f'<text x="{end:.1f}" y="{y + 15}" fill="{colors["text"]}">{value:.3g}</text>'
