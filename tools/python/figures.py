#!/usr/bin/python3
"""Figures and tables of the field, made again by distsim: scenarios/figures/NAME.csv.

    tools/python/figures.py NAME…       print tables: the source's numbers and distsim's (no NAME: all)
    tools/python/figures.py --write     make all again: the column `distsim`, NAME.svg, README.md
    tools/python/figures.py --check     exit 1 if one of the tables (NAME…) would change

A file begins with comments, `# key: value`:

    title, source, says    of the picture; a sentence about the result
    run                    a command of distsim with the columns of a row in braces; --json is added
    value                  the figure, an expression of the JSON object's names and of the columns
    unit, x, lines         of the value; the columns along the axis and of the lines
    where, published       of `run: validate FILE`: which rows of the file, and the measured column

Then a row a point, with the columns of the command and `published` (empty: the source has no number).
"""

import csv
import html
import io
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import distsim  # noqa: E402  (beside this file)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FOLDER = os.path.join("scenarios", "figures")
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]  # Okabe, Ito


def names():
    return sorted(n[:-4] for n in os.listdir(FOLDER) if n.endswith(".csv"))


def read(name):
    keys, lines = {}, []
    with open(os.path.join(FOLDER, name + ".csv"), encoding="utf-8") as file:
        for line in file:
            if line.startswith("# "):
                key, value = line[2:].strip().split(": ", 1)
                keys[key] = value
            else:
                lines.append(line)
    return keys, list(csv.DictReader(lines))


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return text


def evaluate(expression, *scopes):
    scope = {}
    for part in scopes:
        scope.update({key: number(value) for key, value in part.items()})
    return eval(expression, {"__builtins__": {"max": max, "min": min, "sum": sum}}, scope)


def ran(command):
    verb, *words = command.split()
    return distsim.query(verb, *words)


def validated(keys, rows):
    """Rows of a table of measured steps, predicted."""
    _, out, _ = distsim.call("validate", *keys["run"].split()[1:], "--out", "-")
    columns = [c for c in (keys.get("lines"), keys["x"]) if c]
    made = []
    for row in csv.DictReader(io.StringIO(out[out.index("set,"):])):
        if row["refused"] or not evaluate(keys.get("where", "True"), row):
            continue
        point = {c: row[c] for c in columns}
        published, value = evaluate(keys["published"], row), evaluate(keys["value"], row)
        if published == "" or value == "":  # a row of memory, or of a run that does not fit
            continue
        made.append({**point, "published": f"{published:.6g}", "distsim": f"{value:.6g}"})
    return made


def of_pase():
    """PaSE's figure 6 by build/pase-tables, which prints Markdown."""
    out = subprocess.run([os.path.join("build", "pase-tables"), "figure6"], check=True,
                         stdout=subprocess.PIPE).stdout.decode()
    for line in out.splitlines():
        cells = [c.strip() for c in line.strip("| ").split("|")]
        if len(cells) < 7 or not cells[4][:1].isdigit():
            continue
        for devices, measured, simulated in zip((4, 8, 16, 32, 64), cells[4].split(), cells[5].split()):
            yield {"case": f"{cells[1]}, {cells[0]}", "devices": devices, "published": measured,
                   "distsim": simulated}


def make(keys, rows):
    if keys["run"].startswith("validate "):
        return validated(keys, rows)
    if keys["run"].startswith("pase-tables"):
        return list(of_pase())
    for row in rows:
        value = evaluate(keys["value"], row, ran(keys["run"].format(**row)))
        row["distsim"] = f"{value:.6g}"
    return rows


def difference(row):
    try:
        return float(row["distsim"]) / float(row["published"]) - 1
    except (KeyError, ValueError, ZeroDivisionError):  # nothing printed, or 0
        return None


def table(keys, rows):
    columns = list(rows[0]) + ["difference"]
    cells = [columns]
    for row in rows:
        d = difference(row)
        cells.append([row[c] for c in columns[:-1]] + ["" if d is None else f"{100 * d:+.1f} %"])
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    text = f"{keys['title']} ({keys['unit']})\n{keys['source']}\n"
    return text + "".join(
        "  " + "  ".join(c.rjust(w) for c, w in zip(line, widths)) + "\n" for line in cells)


def to_csv(keys, rows):
    out = io.StringIO()
    for key, value in keys.items():
        out.write(f"# {key}: {value}\n")
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def short(label):
    """65536 as 64K: labels of an axis have little room."""
    for unit, size in (("G", 2 ** 30), ("M", 2 ** 20), ("K", 2 ** 10)):
        if label.isdigit() and int(label) > 9999 and int(label) % size == 0:
            return f"{int(label) // size}{unit}"
    return label


def tick(most):
    """1, 2 or 5 times a power of ten, of which at most five reach `most`."""
    step = 10.0 ** math.floor(math.log10(most))
    return next(s for s in (step / 5, step / 2, step, 2 * step) if most / s <= 5)


def svg(keys, rows):
    """Lines are distsim's, circles the source's."""
    wide, high, left, top, right, bottom = 640, 360, 70, 40, 150, 50
    xs = list(dict.fromkeys(r[keys["x"]] for r in rows))
    lines = list(dict.fromkeys(r.get(keys.get("lines"), "") for r in rows))
    values = [float(r[c]) for r in rows for c in ("published", "distsim") if r.get(c)]
    most = max(values + [1e-12]) * 1.05

    def at(row, column):
        x = left + (xs.index(row[keys["x"]]) + 0.5) * (wide - left - right) / len(xs)
        return x, high - bottom - float(row[column]) / most * (high - top - bottom)

    def text(x, y, words, more=""):
        return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{html.escape(words)}</text>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" '
           f'font-family="sans-serif" font-size="11" fill="#222">',
           f"<title>{html.escape(keys['title'])}</title>",
           f'<rect width="{wide}" height="{high}" fill="#fff"/>',
           text(left, 20, keys["title"], 'font-size="13" font-weight="bold"')]
    ticks = tick(most)
    for i in range(int(most / ticks) + 1):
        y = high - bottom - i * ticks / most * (high - top - bottom)
        out.append(f'<path d="M{left} {y:.1f}H{wide - right}" stroke="#ddd"/>')
        out.append(text(left - 6, y + 4, f"{i * ticks:.6g}", 'text-anchor="end"'))
    room = (wide - left - right) / len(xs)
    step = 1 + int(max(len(short(x)) for x in xs) * 6.5 / room)
    for i in range(0, len(xs), step):
        px = left + (i + 0.5) * room
        out.append(text(px, high - bottom + 16, short(xs[i]), 'text-anchor="middle"'))
    out.append(text((left + wide - right) / 2, high - 12, keys["x"], 'text-anchor="middle"'))
    out.append(text(left, top - 6, keys["unit"], 'text-anchor="end"'))
    out.append(text(wide - right + 6, top - 10, keys.get("lines", "")))
    for k, line in enumerate(lines):
        colour = COLOURS[k % len(COLOURS)]
        own = [r for r in rows if r.get(keys.get("lines"), "") == line]
        points = [at(r, "distsim") for r in own if r["distsim"]]
        if keys["x"] == "line":  # rows of a table have no order: crosses
            path = "".join(f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" for x, y in points)
        else:
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for r in own:
            if r.get("published"):
                out.append('<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}"/>'.format(
                    *at(r, "published"), colour))
        if line:
            out.append(text(wide - right + 22, top + 14 * k + 4, line))
            y = top + 14 * k
            out.append(f'<path d="M{wide - right + 6} {y}h12" stroke="{colour}" stroke-width="2"/>')
    out.append(text(wide - right + 6, high - bottom - 16, "line, cross: distsim"))
    out.append(text(wide - right + 6, high - bottom, "circle: the source"))
    return "\n".join(out) + "\n</svg>\n"


HEAD = """# Figures of the field

Part of [scenarios](../README.md). Known figures and tables, made again. `tools/python/figures.py NAME` prints one: the source's numbers, distsim's, the difference. `cmake --build build --target figures` makes all again, with this page. In a picture lines are distsim's, circles the source's numbers. A figure is a file `NAME.csv`, whose first lines have the command.

| figure | source | points | mean difference | largest | result |
| --- | --- | --- | --- | --- | --- |
"""


def page(made):
    text = HEAD
    for name, keys, rows in made:
        ds = [abs(d) for d in map(difference, rows) if d is not None]
        mean = f"{100 * sum(ds) / len(ds):.1f} %" if ds else "no numbers printed"
        most = f"{100 * max(ds):.1f} %" if ds else ""
        text += (f"| [{keys['title']}]({name}.svg): `{name}` | {keys['source']} | {len(rows)} | {mean} "
                 f"| {most} | {keys['says']} |\n")
    return text


def main(words):
    os.chdir(ROOT)
    if words == ["--help"]:
        sys.exit(print(__doc__))
    flags = [w for w in words if w.startswith("--")]
    wanted = [w for w in words if not w.startswith("--")] or names()
    unknown = [w for w in wanted if w not in names()] + [f for f in flags if f not in ("--write", "--check")]
    if unknown:
        sys.exit(f"figures.py: no figure or option {unknown[0]}; figures are {', '.join(names())}")
    changed = []
    for name in wanted:
        keys, rows = read(name)
        before = to_csv(keys, rows) if rows else ""
        rows = make(keys, rows)
        if not rows:
            sys.exit(f"figures.py: {name} has no rows")
        if to_csv(keys, rows) != before:
            changed.append(name)
        if "--write" in flags:
            for end, content in ((".csv", to_csv(keys, rows)), (".svg", svg(keys, rows))):
                with open(os.path.join(FOLDER, name + end), "w", encoding="utf-8") as file:
                    file.write(content)
        if not flags:
            print(table(keys, rows))
    if "--write" in flags:
        with open(os.path.join(FOLDER, "README.md"), "w", encoding="utf-8") as file:
            file.write(page([(n, *read(n)) for n in names()]))
    if "--check" in flags and changed:
        sys.exit("figures.py: these change: " + ", ".join(changed) + "; see --write")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except distsim.Error as error:
        sys.exit(f"figures.py: {error}")
