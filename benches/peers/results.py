"""Where printed tables are kept: a Markdown file with one section a table, replaced when it is printed again."""

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


def put(path, heading, text):
    """Puts `text` under `## heading` of the file at `path`, in place of what stands there."""
    path = pathlib.Path(path)
    kept = path.read_text() if path.exists() else "# Results\n"
    preface, *sections = ("\n" + kept).split("\n## ")
    section = f"{heading}\n\n{text.strip()}\n"
    same = [i for i, old in enumerate(sections) if old.split("\n", 1)[0] == heading]
    if same:
        sections[same[0]] = section
    else:
        sections.append(section)
    parts = [preface.strip()] + [f"## {old.strip()}" for old in sections]
    path.write_text("\n\n".join(parts) + "\n")
