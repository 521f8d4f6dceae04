"""Where printed tables are kept: a file of tab-separated values with one section a table, replaced when it is printed again.

A section begins with a line `## heading`. Lines that begin with `#` are comments: what was measured, and how.
"""

import pathlib
import platform


def processor():
    """The CPU's name with the numbers that tell its generation, which a virtual machine's name may not."""
    try:
        with open("/proc/cpuinfo") as info:
            fields = dict(line.split(":", 1) for line in info if ":" in line)
        named = {name.strip(): value.strip() for name, value in fields.items()}
        known = [named.get("model name", platform.machine())]
        known += [f"{name} {named[name]}" for name in ("cpu family", "model") if name in named]
        return ", ".join(known)
    except OSError:
        return platform.processor() or platform.machine()


def title(what, threads):
    return f"{what}, {threads} thread{'s' if threads > 1 else ''}, {processor()}"


def tab_separated(text):
    """The printed text with its Markdown table as tab-separated values, and every other line as a comment."""
    lines = []
    for line in text.strip().splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip()[1:-1].split("|")]
            if not all(set(cell) <= set("-:") and cell for cell in cells):
                lines.append("\t".join(cells))
        elif line.strip():
            lines.append(f"# {line.strip()}")
    return "\n".join(lines)


def put(path, heading, text):
    """Puts `text` under `## heading` of the file at `path`, in place of what stands there."""
    path = pathlib.Path(path)
    kept = path.read_text() if path.exists() else "# Results\n"
    preface, *sections = ("\n" + kept).split("\n## ")
    section = f"{heading}\n{tab_separated(text)}\n"
    same = [i for i, old in enumerate(sections) if old.split("\n", 1)[0] == heading]
    if same:
        sections[same[0]] = section
    else:
        sections.append(section)
    strip = "\n"
    parts = [preface.strip(strip)] + [f"## {old.strip(strip)}" for old in sections]
    path.write_text("\n\n".join(parts) + "\n")
