#!/usr/bin/env python3
"""mutate.py BUILD [SEED [COUNT]]: does the suite see random mutants of one token?

COUNT mutants (200), equally many from each room below, are drawn by SEED (1). Each is compiled and linked
into libdistsim.so, so a mutant costs one compilation and one link. The tests of a plain run that execute the
mutated line are asked, those of the room and the quick ones first, until one fails; those that take longer
than BUDGET seconds together (60) are not, so a mutant that survives may be one that they see. A mutant that
loops runs into a limit, which counts as seen. Mutants that do not compile, or compile to the same code, are
drawn again. Exit code 1: fewer than 95 % are seen of those that are not equivalent.

equivalent.txt holds survivors that change no result, and why. Results are kept in BUILD/mutants-SEED.json:
another run asks survivors alone, as after new tests or lines of equivalent.txt; after changes of the sources
delete the file. BUILD (made on the first run) is a build of its own; BUILD/coverage.json says which test
executes what, and is brought up to date where tests have changed.

mutate.py BUILD --mutant FILE OLD NEW asks one: the first OLD in FILE is NEW. JOBS at a time (all cores).

Python and not sh: it reads the JSON of ctest and gcov, and runs several tests at once with limits."""
import glob, hashlib, json, multiprocessing, os, random, re, resource, shlex, signal, subprocess, sys, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROOMS = {  # files; tests that are asked first
    "engine": (["sim/engine/*.c"], r"sim/(engine|net|run)/(engine|deadlock|puzzles|interference|stepwise|jobs|contention|pipeline)"),
    "net": (["sim/net/*.c"], r"sim/net/"),
    "coll": (["sim/coll/*.c"], r"sim/(coll/|.*/(fabrics|across|widths))"),
    "mem": (["sim/mem/*.c"], r"sim/mem/"),
    "shard": (["ir/passes/shard/*.c"], r"ir/.*/(shard|clip|tied|across|project|families|stage)"),
    "pipeline": (["ir/passes/pipeline/*.c", "ir/schedule/*.c"], r"ir/(schedule/|.*/(pipeline|stage|tied|families))"),
    "bounds": (["search/bound/*.c"], r"search/(bound|methods)/"),
    "certify": (["search/driver/certify.c"], r"search/(bound|methods|driver/search_report)|cli/.*(search|certif|bound)"),
}
SWAPS = {"<": ["<=", ">", ">="], "<=": ["<", ">="], ">": [">=", "<", "<="], ">=": [">", "<="], "==": ["!="],
         "!=": ["=="], "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["/"], "&&": ["||"], "||": ["&&"],
         "&": ["|"], "|": ["&"], "<<": [">>"], ">>": ["<<"], "++": ["--"], "--": ["++"], "+=": ["-=", "="],
         "-=": ["+=", "="], "|=": ["&=", "="], "&=": ["|=", "="], "*=": ["="], "true": ["false"],
         "false": ["true"], "break": ["continue"], "continue": ["break"], "INT64_MAX": ["0"]}
TOKEN = re.compile(r"""(?P<skip>/\*.*?\*/|//[^\n]*|^[ \t]*\#(?:\\\n|[^\n])*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<word>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)
    |(?P<op><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%&|^<>!~=?:;,.(){}\[\]])""",
                   re.S | re.M | re.X)
PRIMARY = re.compile(r"& ~(\w|->|\.|\[[^\]]*\]|\([^()]*\))+")


def sites(text):
    """Places of one token and what may be put there: (offset, length, [new text])."""
    depth, parens, asserts, previous = 0, 0, None, ""
    aggregate = []  # of open braces: of a struct, enum or initialiser outside of functions?
    for match in TOKEN.finditer(text):
        kind, token, at = match.lastgroup, match.group(), match.start()
        if kind == "skip":
            continue
        before, after = text[at - 1], text[match.end():match.end() + 1]
        spaced = before == " " and after in " \n"
        options = []
        if token == "{":
            aggregate.append(depth == 0 and previous != ")")
        depth += (token == "{") - (token == "}")
        if token == "}" and aggregate:
            aggregate.pop()
        parens += (token == "(") - (token == ")")
        if token in ("assert", "static_assert", "_Static_assert"):
            asserts = parens
        elif asserts is not None and parens == asserts and token == ")":
            asserts = None
        if kind == "number" and token.rstrip("uUlL").isdigit():
            value = int(token.rstrip("uUlL"))
            options = [str(v) for v in {value + 1, max(value - 1, 0), 0} - {value}]
        elif token == "!" and after != "=":
            options = [""]
        elif token in SWAPS and (kind == "word" or spaced or token in ("++", "--")):
            options = list(SWAPS[token])
        if token == "&" and (drop := PRIMARY.match(text, at)):
            yield at, drop.end() - at, [""]
        elif token == "return" and depth:
            value = text[match.end():text.index(";", at)]
            if value.strip() not in ("", "0", "DS_OK", "NULL", "true", "false") and "return" not in value:
                options, at, match = [" 0"], match.end(), re.compile(r"[^;]*").match(text, match.end())
        line = text[text.rfind("\n", 0, at) + 1:text.find("\n", at)]
        declared = re.match(r"\s*(static )?(const )?\w+ \*?\w+\[[^\]]*\](;| = \{)", line) and kind == "number"
        if options and depth and not any(aggregate) and asserts is None and not declared:
            yield at, match.end() - at, options
        previous = token


def draw(room, seed):
    """All sites of the room in the order of the draw."""
    found = []
    for pattern in ROOMS[room][0]:
        for path in sorted(glob.glob(os.path.join(ROOT, pattern))):
            text = open(path).read()
            found += [(os.path.relpath(path, ROOT), *site) for site in sites(text)]
    order = random.Random(f"{seed} {room}")
    order.shuffle(found)
    return [(path, at, length, order.choice(sorted(options))) for path, at, length, options in found]


def line_of(text, at):
    begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    return text.count("\n", 0, at) + 1, text[begin:end].strip()


class Build:
    """Commands of a build folder that make libdistsim.so, and its tests."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        if not os.path.exists(f"{self.folder}/build.ninja"):
            subprocess.run(["cmake", "-S", ROOT, "-B", self.folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None",
                            "-DCMAKE_C_FLAGS=-O1 -fPIC -w", "-DBUILD_SHARED_LIBS=ON",
                            "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON", "-DCMAKE_SKIP_BUILD_RPATH=ON",
                            "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--copy-dt-needed-entries"], check=True)
        env = dict(os.environ, LD_LIBRARY_PATH=self.folder)
        subprocess.run(["ninja", "-C", self.folder], check=True, env=env, stdout=subprocess.DEVNULL)
        self.compile = {os.path.relpath(c["file"], ROOT): shlex.split(c["command"])
                        for c in json.load(open(f"{self.folder}/compile_commands.json"))
                        if "/ds_" in c.get("output", c["command"])}
        last = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "libdistsim.so"],
                              capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        self.link = shlex.split(last.split("&&")[1])
        shown = subprocess.run(["ctest", "--test-dir", self.folder, "--show-only=json-v1"],
                               capture_output=True, text=True, check=True).stdout
        self.tests = {t["name"]: t["command"] for t in json.loads(shown)["tests"]}

    def command(self, path, source, made):
        """The object of the file `path` in the link, and the command that compiles `source` in its place."""
        command = [w for w in self.compile[path] if not w.endswith("ccache")]
        origin = command[command.index("-o") + 1]
        command[command.index("-o") + 1] = made
        command[command.index("-c") + 1] = source
        return origin, command + ["-w"]

    def make(self, source, path, work):
        """Compiles the text `source` of the file `path` and links it; the object's text, or None."""
        copy, made = f"{work}/{os.path.basename(path)}", f"{work}/mutant.o"
        open(copy, "w").write(source)
        origin, command = self.command(path, copy, made)
        command.append(f"-ffile-prefix-map={work}={os.path.dirname(path)}")
        if subprocess.run(command, cwd=self.folder, stderr=subprocess.DEVNULL).returncode:
            return None
        link = [made if w == origin else w for w in self.link]
        link[link.index("-o") + 1] = f"{work}/libdistsim.so"
        subprocess.run(link + ["-fuse-ld=gold"], cwd=self.folder, check=True)
        return hashlib.sha256(open(made, "rb").read()).hexdigest()

    def made(self, test):
        """When the test was changed last: its objects, or its script and the file that is its test."""
        program = os.path.basename(self.tests[test][0])
        files = glob.glob(f"{self.folder}/tests/CMakeFiles/{program}.dir/**/*.o", recursive=True)
        files += [os.path.join(ROOT, w) for w in self.tests[test] if self.folder not in w]
        return max([os.path.getmtime(f) for f in files if os.path.isfile(f)], default=0)

    def run(self, test, work, seconds, **env):
        """Does the test pass with the library in `work`? Seconds are those of the processor."""
        def limits():
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
            resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        command = self.tests[test]
        if os.path.basename(command[0]).startswith("test_"):
            command = command + ["--jobs", "1", "--fail-fast"]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 start_new_session=True, preexec_fn=limits,
                                 env=dict(os.environ, LD_LIBRARY_PATH=work, **env))
        try:
            return child.wait(timeout=20 * seconds) == 0
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return False


def save(what, path):
    with open(path + ".new", "w") as file:
        json.dump(what, file)
    os.replace(path + ".new", path)


def children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cover(arguments):
    """Seconds that the test takes, and lines of each file that it executes."""
    build, test = arguments
    counts = f"{build.folder}/gcov/{test.replace('/', '_')}"
    os.makedirs(counts, exist_ok=True)
    for note in glob.glob(f"{build.folder}/gcov/*.gcno"):
        if not os.path.exists(link := f"{counts}/{os.path.basename(note)}"):
            os.symlink(note, link)
    used, strip = children_seconds(), str(f"{build.folder}/gcov".count("/"))
    fine = build.run(test, f"{build.folder}/gcov", 600, GCOV_PREFIX=counts, GCOV_PREFIX_STRIP=strip)
    seconds, lines = children_seconds() - used, {}
    data = glob.glob(f"{counts}/*.gcda")
    text = data and subprocess.run(["gcov", "--json-format", "--stdout", *data], cwd=counts, text=True,
                                   capture_output=True).stdout
    for report in (text or "").splitlines():
        for file in json.loads(report)["files"]:
            lines[os.path.relpath(os.path.join(ROOT, file["file"]), ROOT)] = [
                l["line_number"] if l["count"] else -l["line_number"] for l in file["lines"]]
    subprocess.run(["rm", "-r", counts])
    return test, fine, seconds, lines


def instrument(build):
    """Makes BUILD/gcov/libdistsim.so, in which the files of the rooms count their lines."""
    work, link = f"{build.folder}/gcov", list(build.link)
    os.makedirs(work, exist_ok=True)
    for pattern in (p for patterns, _ in ROOMS.values() for p in patterns):
        for path in glob.glob(f"{ROOT}/{pattern}"):
            made = f"{work}/{os.path.basename(path)}.o"
            origin, command = build.command(os.path.relpath(path, ROOT), path, made)
            link[link.index(origin)] = made
            command = [w for w in command if "prefix-map" not in w]  # gcov looks for the sources
            subprocess.run(command + ["-O0", "--coverage"], cwd=build.folder, check=True)
    link[link.index("-o") + 1] = f"{work}/libdistsim.so"
    subprocess.run(link + ["--coverage"], cwd=build.folder, check=True)


def coverage(build, jobs):
    """{test: seconds, lines}, of tests that are new or have changed found out again."""
    kept = f"{build.folder}/coverage.json"
    out = json.load(open(kept)) if os.path.exists(kept) else {}
    todo = [t for t in build.tests if t not in out or out[t]["made"] != build.made(t)]
    if todo:
        instrument(build)
    with multiprocessing.Pool(jobs) as pool:
        for test, fine, seconds, lines in pool.imap_unordered(cover, [(build, t) for t in todo]):
            print(f"{seconds:6.1f} s  {test}" + ("" if fine else "  FAILS without any mutant: left out"), flush=True)
            out[test] = {"seconds": seconds, "lines": lines if fine else {}, "made": build.made(test)}
            save(out, kept)
    return {t: out[t] for t in build.tests}


def asked(path, line, first):
    """The tests that execute the line, in the order in which they are asked."""
    def executes(lines):  # a statement of several lines has its count at its first
        near = [l for l in lines if abs(l) <= line]
        return bool(near) and max(near, key=lambda l: (abs(l), l)) > 0
    found = [(t["seconds"] * (1 if re.search(first, name) else 8), name) for name, t in TESTS.items()
             if executes(t["lines"].get(path, []))]
    return [name for _, name in sorted(found)]


BUDGET = float(os.environ.get("BUDGET", 60))
TESTS = {}  # of coverage(); workers have it from the process that forks them


def judge(arguments):
    """Runs the tests with one mutant."""
    build, room, (path, at, length, new), original = arguments
    text = open(f"{ROOT}/{path}").read()
    line, old_line = line_of(text, at)
    mutant = text[:at] + new + text[at + length:]
    out = {"room": room, "site": [path, at, length, new], "file": path, "line": line, "old": old_line,
           "new": line_of(mutant, at)[1], "by": None, "asked": 0}
    work = f"{build.folder}/work/{os.getpid()}"
    os.makedirs(work, exist_ok=True)
    start = time.monotonic()
    code = build.make(mutant, path, work)
    if not code or code == original:
        return dict(out, invalid=True)
    used = 0
    for test in asked(path, line, ROOMS[room][1]):
        if used + TESTS[test]["seconds"] > BUDGET:
            continue
        out["asked"] += 1
        used += TESTS[test]["seconds"]
        if not build.run(test, work, max(5, 5 * TESTS[test]["seconds"])):
            out["by"] = test
            break
    return dict(out, seconds=round(time.monotonic() - start, 1))


def equivalents():
    """{(file, line, mutated line): why} of equivalent.txt."""
    found, entry = {}, []
    for line in open(f"{ROOT}/tests/faults/equivalent.txt"):
        if line.startswith("#") or not line.strip():
            continue
        entry.append(line.strip())
        if len(entry) == 4:
            found[entry[0], entry[1][2:], entry[2][2:]] = entry[3]
            entry = []
    return found


def report(results, known):
    table = {room: [0, 0, 0] for room in ROOMS}
    for r in results:
        same = (r["file"], r["old"], r["new"]) in known
        state = "seen" if r["by"] else "equivalent" if same else "SURVIVED"
        table[r["room"]][("seen", "equivalent", "SURVIVED").index(state)] += 1
        print(f"{state:10} {r['file']}:{r['line']}  {r['old']}  =>  {r['new']}  "
              f"[{r['by'] or str(r['asked']) + ' tests'}, {r['seconds']} s]")
    total = [sum(column) for column in zip(*table.values())]
    print(f"\n{'room':10}{'mutants':>9}{'seen':>9}{'equivalent':>12}{'survived':>10}{'seen of the rest':>18}")
    for room, (seen, same, lives) in [*table.items(), ("all", total)]:
        share = f"{100 * seen / (seen + lives):.1f} %" if seen + lives else "-"
        print(f"{room:10}{seen + same + lives:9}{seen:9}{same:12}{lives:10}{share:>18}")
    return total[0] >= 0.95 * (total[0] + total[2])


def ask(pool, build, todo, original):
    """The results of (room, site)s as they come."""
    for _, (path, *_) in todo:
        if path not in original:
            text = open(f"{ROOT}/{path}").read()
            original[path] = build.make(text, path, f"{build.folder}/work")
    yield from pool.imap_unordered(judge, [(build, room, s, original[s[0]]) for room, s in todo])


def sample(build, seed, count, jobs):
    """Draws and asks until there are enough of each room; those of earlier runs that survived again."""
    kept = f"{build.folder}/mutants-{seed}.json"
    results = json.load(open(kept)) if os.path.exists(kept) else []
    known, original = equivalents(), {}
    again = [r for r in results if not r["by"] and (r["file"], r["old"], r["new"]) not in known]
    results = [r for r in results if r not in again]
    todo = [(r["room"], r["site"]) for r in again]
    drawn = [r["site"] for r in results + again]
    queues = {room: [s for s in draw(room, seed) if list(s) not in drawn] for room in ROOMS}
    with multiprocessing.Pool(jobs) as pool:
        while True:
            for room, queue in queues.items():
                n = max(count // len(ROOMS) - sum(r["room"] == room for r in results + again), 0)
                todo += [(room, site) for site in queue[:n]]
                del queue[:n]
            if not todo:
                break
            for r in ask(pool, build, todo, original):
                if not r.get("invalid"):
                    results.append(r)
                    print("." if r["by"] else f"{r['file']}:{r['line']}  {r['old']}  =>  {r['new']}", flush=True)
                    save(results + [a for a in again if a["site"] not in [r["site"] for r in results]], kept)
            todo, again = [], []
    return report(results, known)


def one(build, path, old, new):
    at = open(f"{ROOT}/{path}").read().index(old)
    room = next(r for r, (patterns, _) in ROOMS.items()
                for p in patterns if f"{ROOT}/{path}" in glob.glob(f"{ROOT}/{p}"))
    result = next(ask(multiprocessing.Pool(1), build, [(room, (path, at, len(old), new))], {}))
    print(result)
    return bool(result.get("by"))


def main():
    single = sys.argv.index("--mutant") if "--mutant" in sys.argv else len(sys.argv)
    build, *numbers = sys.argv[1:single]
    seed, count = ([int(n) for n in numbers] + [1, 200][len(numbers):])[:2]
    jobs = int(os.environ.get("JOBS", os.cpu_count() or 1))
    build = Build(build)
    TESTS.update(coverage(build, jobs))
    os.makedirs(f"{build.folder}/work", exist_ok=True)
    fine = one(build, *sys.argv[single + 1:]) if single < len(sys.argv) else sample(build, seed, count, jobs)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
