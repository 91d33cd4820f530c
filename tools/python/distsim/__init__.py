"""distsim from Python: runs the program `distsim` and reads its JSON and CSV.

    import distsim
    run = distsim.run("scenarios/tour.dir", tp=4, dp=2)
    run.step_time                   # seconds; every name of the JSON object is an attribute, too
    run.timeline()                  # a row a task
    distsim.sweep("scenarios/distir-grid.dir", vary={"tp": [1, 2, 4]})

Tables are pandas DataFrames where pandas is installed, else lists of dicts. Whatever distsim refuses
is a distsim.Error with the text of the diagnostics. The program is $DISTSIM, else the build of this
source tree, else `distsim` of the PATH.
"""

import csv
import html
import io
import json
import os
import shutil
import subprocess
import tempfile

try:
    import pandas
except ImportError:
    pandas = None

__all__ = ["Error", "Run", "call", "compare", "ladder", "plan", "program", "query", "records", "run", "sensitivity",
           "sweep", "what_if"]


class Error(Exception):
    """What distsim refused: the diagnostics; `exit_code` is 1 (wrong), 2 (usage) or 3 (internal)."""

    def __init__(self, text, exit_code):
        super().__init__(text)
        self.exit_code = exit_code


def program():
    """The path of the program."""
    here = os.path.dirname(os.path.abspath(__file__))
    built = os.path.join(here, "..", "..", "..", "build", "distsim")
    for path in (os.environ.get("DISTSIM"), built, shutil.which("distsim")):
        if path and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise Error("no program distsim: build it, put it on the PATH, or set $DISTSIM", 2)


def call(verb, *arguments):
    """distsim VERB ARGUMENTS…: (exit code, stdout, stderr)."""
    done = subprocess.run([program(), verb, *map(str, arguments)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def _value(value):
    """A value as the language writes it: 4, 0.5, true, ["a", "b"], text as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(json.dumps(v) if isinstance(v, str) else _value(v) for v in value) + "]"
    return str(value)


def _arguments(file, settings, options):
    words = [file]
    for name, value in settings.items():
        words += ["--set", f"{name.replace('__', '.')}={_value(value)}"]
    for name, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            flag = "--" + name.replace("_", "-")
            words += [flag] if one is True else [] if one is False or one is None else [f"{flag}={one}"]
    return words


def query(verb, *words):
    """The JSON object that a verb prints."""
    code, out, text = call(verb, *words, "--json")
    try:
        return json.loads(out)  # also of what does not fit, which ends with 1
    except ValueError:
        raise Error(text.strip() or f"distsim {verb} ended with {code}", code) from None


def _number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False, "": None}.get(text, text)


def _table(rows):
    rows = list(rows)
    return pandas.DataFrame(rows) if pandas else rows


def records(table):
    """A table as a list of dicts, with pandas or without."""
    return table if isinstance(table, list) else table.to_dict("records")


def _from_csv(text):
    rows = csv.DictReader(io.StringIO(text))
    return _table({name: _number(cell) for name, cell in row.items()} for row in rows)


class Run:
    """A simulated step. Members of the JSON object (sim/report/JSON.md) are attributes; names that
    end in _ps are there in seconds, too: run.step_time, run.compute, run.exposed_comm."""

    def __init__(self, words):
        self._words = words
        self.json = query("run", *words)

    def __getattr__(self, name):
        values = self.__dict__.get("json", {})
        if name in values:
            return values[name]
        if name + "_ps" in values:
            return values[name + "_ps"] * 1e-12
        raise AttributeError(f"a run has no '{name}'; it has {', '.join(sorted(values))}")

    def __dir__(self):
        return sorted(set(super().__dir__()) | set(self.json))

    def _written(self, option, name):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name)
            code, _, text = call("run", *self._words, "--quiet", "--no-advice", f"--{option}={path}")
            if not os.path.exists(path):
                raise Error(text.strip(), code)
            with open(path, encoding="utf-8") as file:
                return file.read()

    def timeline(self):
        """A row a task: device, stream, op, path, start_ps, end_ps, …"""
        return _from_csv(self._written("csv", "tasks.csv"))

    def critical_path(self):
        """A row a segment of the critical path."""
        return _table(self.json["critical_path"]["segments"])

    def trace(self):
        """The text of a trace for ui.perfetto.dev."""
        return self._written("trace", "step.json")

    def report(self):
        """The text of the page of `distsim run --html`."""
        return self._written("html", "step.html")

    def save(self, path):
        """Writes the page."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.report())

    def __repr__(self):
        fits = "fits" if self.fits else "does not fit"
        return f"<distsim.Run {self.json['file']}: step {self.step_time:.6g} s, {fits}>"

    def _repr_html_(self):
        """The page in a frame of its own, so that a notebook's styles and the page's stay apart."""
        page = html.escape(self.report(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="700" style="border:0"></iframe>'


def run(file, options=None, **settings):
    """Simulates a scenario: run("x.dir", tp=4, strategy__zero=1). Two underscores are a dot. `options`
    are options of the verb: {"profile": "generic", "what_if": …} as in `distsim help run`."""
    return Run(_arguments(file, settings, options or {}))


def compare(file, other, options=None, **settings):
    """Two settings of one scenario by cause: compare("x.dir", {"tp": 8}, tp=4), or two scenarios:
    compare("x.dir", "y.dir"). As `run --compare-set` and `--compare`: the JSON object; its members
    time and memory as tables."""
    words = _arguments(file, settings, options or {})
    if isinstance(other, dict):
        words += [f"--compare-set={name.replace('__', '.')}={_value(value)}" for name, value in other.items()]
    else:
        words.append(f"--compare={other}")
    result = query("run", *words)
    return {key: _table(part) if key in ("time", "memory", "knobs") else part
            for key, part in result.items()}


def what_if(file, *changes, **settings):
    """The step on other machines, one change after the other: what_if("x.dir", "link nic * 2")."""
    return _table(query("run", *_arguments(file, settings, {"what_if": list(changes)}))["what_if"])


def ladder(file, terms=None, **settings):
    """The step without terms of the cost model, left out one after the other."""
    option = {"ladder": ",".join(terms) if terms else True}
    return _table(query("run", *_arguments(file, settings, option))["without"])


def sensitivity(file, **settings):
    """The change of the step by 1 % more of each resource."""
    return _table(query("run", *_arguments(file, settings, {"sensitivity": True}))["one_percent_more"])


def sweep(file, vary=None, where=(), options=None, **settings):
    """All candidates, a row each: sweep("x.dir", vary={"tp": [1, 2, 4]}, where=["dp * tp == 8"])."""
    words = _arguments(file, settings, options or {}) + ["--quiet"]
    for name, values in (vary or {}).items():
        text = values if isinstance(values, str) else ",".join(_value(v) for v in values)
        words.append(f"--vary={name}={text}")
    words += [f"--where={condition}" for condition in where]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv")
        code, _, text = call("sweep", *words, "-o", path)
        if not os.path.exists(path):
            raise Error(text.strip(), code)
        with open(path, encoding="utf-8") as file_:
            return _from_csv(file_.read())


def plan(model, options=None, **settings):
    """The best ways to train a model: plan("llama-3-8b.json", {"gpu": "H100", "nodes": 2})."""
    return query("plan", *_arguments(model, settings, options or {}))
