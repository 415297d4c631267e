"""Reads a training script and the project's modules that it imports, and prints what they show of its settings.

Nothing of the project is run: its files are parsed. Reads a JSON object from its argument and prints one: `script`, or
`text` for the source of a script without a file, and `cwd` and `words`, the folder and the arguments of the command.
"""

import sys

if sys.path and sys.path[0] in ("", "."):
    del sys.path[0]  # the working folder, whose files may have the names of the modules below

import ast
import json
import os
import re

#: The most files that are read, since a project's package may be large. The limits here are round numbers.
MOST_FILES = 60
LARGEST = 512 * 1024
#: The most calls of a file, and the longest argument of a call in characters.
MOST_CALLS = 5000
LONGEST = 20_000
#: How many folders above a script its project is looked for.
HIGHEST_PROJECT = 5

#: Modules that parse arguments, and so answer to `--help`.
PARSERS = (
    "argparse click typer hydra absl fire tyro simple_parsing jsonargparse docopt configargparse lightning.pytorch.cli "
    "pytorch_lightning.cli draccus tap plac optparse gflags"
).split()
#: Modules that make loaders themselves: a script that uses one of them need not name a loader.
LOADER_MODULES = (
    "lightning pytorch_lightning transformers.Trainer transformers.Seq2SeqTrainer transformers.trainer trl setfit "
    "sentence_transformers fastai composer timm torch_geometric.loader webdataset mmengine mmcv detectron2 ultralytics "
    "monai catalyst torchtune litdata streaming"
).split()
#: Calls that make a loader, without underscores and in lower case; names with `dataloader` count as well.
LOADER_CALLS = "createloader getloader getloaders buildloader makeloader neighborloader webloader".split()
#: The variables that torch's launchers set for each rank (torch's documentation, "torchrun", "Environment Variables").
LAUNCHER_VARIABLES = ["RANK", "LOCAL_RANK", "WORLD_SIZE"]
#: The options of `transformers.TrainingArguments` (its documentation) that a search may set, with their defaults.
TRAINING_ARGUMENTS = {
    "--per_device_train_batch_size": "8",
    "--gradient_accumulation_steps": "1",
    "--dataloader_num_workers": "0",
    "--dataloader_prefetch_factor": None,
    "--dataloader_persistent_workers": "False",
    "--dataloader_pin_memory": "True",
    "--bf16": "False",
    "--fp16": "False",
    "--torch_compile": "False",
    "--gradient_checkpointing": "False",
}
RATE_UNIT = re.compile(
    r"\b(?:(?:samples|images|imgs|img|examples|sequences|seqs|tokens|tok|(?P<steps>steps|it|iters|batches))"
    r"(?:/|_per_| per )(?:s|sec|second)|(?P<time>ms|s|sec|seconds)(?:/|_per_| per )(?:step|it|iter|batch))\b"
)
#: The number of a rate, however it is written.
NUMBER = r"([0-9](?:[0-9.,]*[0-9])?(?:[eE][+-]?[0-9]+)?)"
#: A value in a string that `%` or `format` fills in.
PLACEHOLDER = re.compile(r"""%(?:\(\w+\))?[-+#0-9.*]*[diufFeEgGsr]|\{[\w.\[\]]*(?:![rsa])?(?::[^{}"']*)?\}""")
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: What may stand between a number and its unit, apart from spaces.
BETWEEN = r"[\s,(\[|│┃]*"
#: The words before a rate that say which part of the training it is of.
OF_TRAINING = re.compile(r"(?i)(?<![a-z])(?:train\w*|total|throughput)")
OF_OTHERS = re.compile(r"(?i)(?<![a-z])(?:eval\w*|valid\w*|val|test\w*|load\w*|data\w*)(?![a-z])")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def literal(node):
    """The value of a literal: a string, a number as written, `True`, `False` or `None`. Other code has none."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = literal(node.operand)
        return "-" + value if value and value[0].isdigit() else None
    if not isinstance(node, ast.Constant) or isinstance(node.value, (bytes, complex, type(...))):
        return None
    return getattr(node, "written", str(node.value))


def number_or_literal(node):
    """The literal, or the value of a product of whole numbers such as `5 * 8`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factors = [number_or_literal(side) for side in (node.left, node.right)]
        is_whole = all(factor and factor.lstrip("-").isdigit() for factor in factors)
        return str(int(factors[0]) * int(factors[1])) if is_whole else None
    return literal(node)


def literals(node):
    """The literals in a list or tuple."""
    elements = node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else []
    return [value for value in map(literal, elements) if value is not None]


def dotted(node):
    """The name of a called function, as far as it consists of names: `torch.optim.SGD`, or `step` in `f(x).step`."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def last(node):
    return dotted(node.func).rsplit(".", 1)[-1]


def keyword(call, name):
    return next((given.value for given in call.keywords if given.arg == name), None)


def is_true(node):
    return isinstance(node, ast.Constant) and node.value is True


class File:
    """A file of the script's own: its text, its syntax tree, and the nodes of the tree in the order of the text."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = [line.encode() for line in re.split("(?<=\n)", text.replace("\r\n", "\n").replace("\r", "\n"))]
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.tree = ast.Module([], [])
        self.nodes = list(ast.walk(self.tree))
        self.nodes.sort(key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
        for node in self.of(ast.Constant):
            if isinstance(node.value, float):
                node.written = self.code(node)

    def of(self, *kinds):
        return [node for node in self.nodes if isinstance(node, kinds)]

    def code(self, node):
        """A node as written."""
        lines = self.lines[node.lineno - 1 : node.end_lineno] or [b""]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"".join(lines).decode(errors="replace")

    def imports(self):
        """The modules of `import a, b.c as d` and `from a.b import c` (which may name a module `a.b.c`)."""
        found = []
        for node in self.of(ast.Import, ast.ImportFrom):
            names = [alias.name for alias in node.names if alias.name != "*"]
            if isinstance(node, ast.Import):
                found += names
                continue
            module = "." * node.level + (node.module or "")
            dot = "" if module.endswith(".") else "."
            found += [module, *(module + dot + name for name in names)]
        return found

    def executed(self):
        """The files that the text executes: `exec(open("configurator.py").read())`."""
        return re.findall(r"""(?m)^[^#\n]*\bexec\(\s*open\(\s*['"]([^'"\n]+)['"]""", self.text)

    def calls(self):
        found = []
        for node in self.of(ast.Call):
            name = dotted(node.func)
            if not name or len(found) >= MOST_CALLS:
                continue
            root = node.func
            while isinstance(root, ast.Attribute):
                root = root.value
            begins = isinstance(root, ast.Name)
            place = (root.lineno, root.col_offset) if begins else (node.func.end_lineno, node.func.end_col_offset)
            named = [(given.arg, self.code(given.value)) for given in node.keywords if given.arg]
            positional = [self.code(argument) for argument in node.args]
            positional += ["**" + self.code(given.value) for given in node.keywords if not given.arg]
            if sum(map(len, positional)) + sum(len(code) for _, code in named) <= LONGEST:
                call = {"name": name, "positional": positional, "named": named, "line": place[0]}
                found.append((place, call))
        found.sort(key=lambda pair: pair[0])
        return [call for _, call in found]


class Conditions(ast.NodeVisitor):
    """Finds the nodes of a function or module that an `if` does not guard, except for the `if` of the main module."""

    def __init__(self, tree):
        self.always = []
        self.is_guarded = False
        self.visit(tree)

    def generic_visit(self, node):
        if not self.is_guarded:
            self.always.append(node)
        super().generic_visit(node)

    def within(self, nodes, is_guarded):
        before, self.is_guarded = self.is_guarded, is_guarded
        for node in nodes:
            self.visit(node)
        self.is_guarded = before

    def visit_If(self, node):
        self.visit(node.test)
        names = [name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)]
        self.within(node.body, self.is_guarded or "__name__" not in names)
        self.within(node.orelse, True)

    def visit_FunctionDef(self, node):
        self.within(node.decorator_list + node.body, False)

    visit_AsyncFunctionDef = visit_FunctionDef


class Script:
    """A script with the modules of its project that it imports."""

    def __init__(self, asked):
        self.words = asked["words"]
        self.cwd = asked["cwd"]
        self.files = []
        self.modules = set()
        if asked.get("text") is not None:
            self.add(File("", asked["text"]))
        else:
            self.follow(asked["script"])
        self.calls = [node for file in self.files for node in file.of(ast.Call)]

    def add(self, file):
        self.files.append(file)
        for module in file.imports():
            parts = [part for part in module.split(".") if part]
            self.modules.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))

    def follow(self, script):
        """Reads the script and the files that it imports or executes, from beside it, from the folder, or its project."""
        folder = os.path.dirname(script) or "."
        folders = [folder, self.cwd]
        place = os.path.realpath(folder)
        for _ in range(HIGHEST_PROJECT):
            if any(os.path.exists(os.path.join(place, name)) for name in ("pyproject.toml", "setup.py", "setup.cfg", ".git")):
                folders += [os.path.join(place, "src"), place]
                break
            place = os.path.dirname(place)
        waiting, seen = [script], {os.path.realpath(script)}
        while waiting:
            path = waiting.pop(0)
            text = read(path)
            if text is None:
                continue
            file = File(path, text)
            self.add(file)
            names = [os.path.join(place, name) for name in file.executed() for place in (self.cwd, folder)]
            for module in file.imports():
                stem = module.lstrip(".")
                base = os.path.dirname(path)
                for _ in range(len(module) - len(stem) - 1):
                    base = os.path.dirname(base)
                for place in [base] if module != stem else folders:
                    path_of = os.path.join(place, *stem.split("."))
                    names += [path_of + ".py", os.path.join(path_of, "__init__.py")]
            for name in names:
                real = os.path.realpath(name)
                if len(seen) < MOST_FILES and real not in seen and os.path.isfile(name):
                    seen.add(real)
                    waiting.append(name)

    def has(self, *words):
        """Whether a text has any of these words."""
        return any(word in file.text for file in self.files for word in words)

    def named(self, *names):
        return [call for call in self.calls if last(call) in names]

    def parses_arguments(self):
        # argparse is often imported but not used.
        is_used = self.has("parse_args(", "parse_known_args(", "parse_intermixed_args(")
        parsers = [parser for parser in PARSERS if parser in self.modules and (parser != "argparse" or is_used)]
        return bool(parsers or self.named("HfArgumentParser", "LightningCLI"))

    def has_loader(self):
        """Whether the script has a loader, or may get one from a module that is not its own."""
        called = {dotted(call.func) for call in self.calls}
        if any(module in self.modules or module in called for module in LOADER_MODULES):
            return True
        own = {node.name for file in self.files for node in file.of(ast.ClassDef, *FUNCTIONS)}
        names = set()
        for call in self.calls:
            plain = last(call).replace("_", "").lower()
            if "dataloader" in plain or plain in LOADER_CALLS:
                names.add(last(call))
        mentioned = {"DataLoader", "StatefulDataLoader"}
        for file in self.files:
            names |= mentioned & {node.id for node in file.of(ast.Name)}
            names |= mentioned & {node.attr for node in file.of(ast.Attribute)}
            names |= mentioned & {alias.name for alias in file.of(ast.alias)}
        return bool(names - own)

    def spawns_ranks(self):
        """Whether the script always starts its ranks: it calls `torch.multiprocessing.spawn` unconditionally."""
        always = [node for file in self.files for node in Conditions(file.tree).always]
        spawns = any(isinstance(node, ast.Call) and last(node).endswith("spawn") for node in always)
        return spawns and "torch.multiprocessing" in self.modules

    def launcher_variable(self):
        """The variable of a launcher that the script reads, unless it asks first whether the variable is set."""
        known = LAUNCHER_VARIABLES + ["SLURM_PROCID"]
        for file in self.files:
            for node in file.of(ast.Call):
                of_environ = dotted(node.func).endswith(("environ.get", "environ.setdefault", "getenv"))
                if of_environ and node.args and literal(node.args[0]) in known:
                    return None
            for node in file.of(ast.Compare):
                if literal(node.left) in known and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                    return None
            for node in file.of(ast.Subscript):
                if isinstance(node.ctx, ast.Store) and of_variable(node) in known:
                    return None
        if not self.files:
            return None
        main = self.files[0]
        for node in Conditions(main.tree).always:
            if isinstance(node, ast.Subscript) and of_variable(node) in LAUNCHER_VARIABLES:
                return of_variable(node)
        # `{key: os.environ[key] for key in ("RANK", ...)}`
        listed = {name for node in main.of(ast.Tuple, ast.List, ast.Set) for name in literals(node)}
        reads = "os.environ[" in main.text and "torch.distributed" in self.modules
        return next((name for name in LAUNCHER_VARIABLES if reads and name in listed), None)

    def printed_rate(self):
        """A pattern for the number of a rate that the script prints, and its unit such as `images/sec`.

        Rates of the training in a loop come first, then rates of samples before rates of steps.
        """
        units = {name: value for name, value in self.values()[0].items() if value and RATE_UNIT.fullmatch(value)}
        looped = self.looped()
        strings = []
        for file in self.files:
            skipped = {id(node.value) for node in file.of(ast.Expr)}
            skipped |= {id(part) for node in file.of(ast.JoinedStr) for part in node.values}
            printed, before_value = set(), set()
            for node in file.of(ast.Call):
                if last(node) in ("add_argument", "ArgumentParser", "option", "Option"):
                    skipped |= {id(part) for part in ast.walk(node)}
                elif any(word in last(node).lower() for word in ("print", "log", "write", "format", "info", "desc")):
                    printed |= {id(part) for part in ast.walk(node)}
                    before_value |= {id(node.args[0])} if len(node.args) > 1 else set()
            keys = {id(key) for node in file.of(ast.Dict) for key in node.keys}
            for node in file.of(ast.JoinedStr, ast.Constant):
                text = shown_text(node, units)
                if id(node) in skipped or not (id(node) in printed or isinstance(node, ast.JoinedStr) or "{}" in text):
                    continue
                if "{}" not in text and (id(node) in keys or id(node) in before_value):
                    text += ": {}" if id(node) in keys else " {}"
                rates = rates_in(text)
                if rates:
                    rate = min(rates, key=lambda rate: (rate["is_other"], rate["is_of_steps"], not rate["is_training"]))
                    strings.append({"text": text, "is_looped": id(node) in looped, "rates": rates, **rate})
        if not strings:
            return None
        found = min(strings, key=lambda rate: (rate["is_other"], not rate["is_looped"], rate["is_of_steps"]))
        pattern = found["pattern"]
        others = [other["text"].replace("{}", "1") for other in strings if other["is_other"] and not found["is_other"]]
        earlier = [rate["pattern"] for rate in found["rates"] if rate["start"] < found["start"]]
        if pattern in earlier or any(re.search(pattern, text) for text in others):
            pattern = found["words"] + pattern
            if found["begins"] and any(re.search(pattern, text) for text in others):
                pattern = r"^\W*" + pattern
        return [pattern, found["unit"]]

    def looped(self):
        """The nodes in loops, and in functions that are called in loops."""
        functions = [node for file in self.files for node in file.of(*FUNCTIONS)]
        waiting = [node for file in self.files for node in file.of(ast.For, ast.AsyncFor, ast.While)]
        looped = set()
        while waiting:
            parts = [part for node in waiting for part in ast.walk(node) if id(part) not in looped]
            looped |= set(map(id, parts))
            called = {last(part) for part in parts if isinstance(part, ast.Call)}
            waiting = [node for node in functions if node.name in called and id(node) not in looped]
        return looped

    def values(self):
        """Names, and attributes and keys, to which all of the text assigns the same literal, with the literal."""
        constants, members = {}, {}

        def note(values, name, node):
            value = literal(node)
            if value is not None:
                values[name] = value if values.get(name, value) == value else None

        for file in self.files:
            for node in file.nodes:
                if isinstance(node, (ast.Assign, ast.AnnAssign)):
                    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                        if isinstance(target, ast.Name):
                            note(constants, target.id, node.value)
                        elif isinstance(target, ast.Attribute):
                            note(members, target.attr, node.value)
                elif isinstance(node, ast.keyword) and node.arg:
                    note(constants, node.arg, node.value)
                elif isinstance(node, ast.arguments):
                    for name, _, default in parameters(node):
                        note(constants, name, default)
                elif isinstance(node, ast.Dict):
                    for key, value in zip(node.keys, node.values):
                        if isinstance(key, ast.Constant) and str(key.value).isidentifier():
                            note(members, str(key.value), value)
        return constants, members

    def arguments(self):
        """The arguments that the source declares, with their defaults if these are literals."""
        all_of_them = [declared(call) for call in self.calls]
        others = self.of_functions() + self.of_fields()
        if self.named("HfArgumentParser") and self.has("TrainingArguments"):
            for name, default in TRAINING_ARGUMENTS.items():
                kind = "MaybeValue" if default in ("True", "False") else valued()
                others.append(argument([name], kind, default))
        found, names = [], set()
        for known in filter(None, all_of_them + others):
            if known in others and names & set(known["names"]):
                continue
            found.append(known)
            names |= set(known["names"])
        return found

    def of_functions(self):
        """The parameters of functions that fire and typer turn into command lines."""
        fire, typer = "fire" in self.modules, "typer" in self.modules
        if not fire and not typer:
            return []
        taken = [dotted(call.args[0]) for call in self.calls if call.args and dotted(call.func) in ("typer.run", "fire.Fire", "Fire")]
        found = []
        for file in self.files:
            for function in file.tree.body:
                if not isinstance(function, FUNCTIONS):
                    continue
                decorators = [dotted(getattr(node, "func", node)) for node in function.decorator_list]
                if function.name in taken or (typer and any(".command" in "." + name for name in decorators)):
                    made = of_typer if typer else of_fire
                    found += [made(name, annotation, default) for name, annotation, default in parameters(function.args)]
        return found

    def of_fields(self):
        """The fields of dataclasses that a parser takes."""
        if self.named("HfArgumentParser"):
            parser = "transformers"
        else:
            parser = next((name for name in ("tyro", "simple_parsing", "draccus", "pyrallis", "tap") if name in self.modules), None)
        if parser is None:
            return []
        found = []
        for file in self.files:
            for node in file.of(ast.ClassDef):
                decorators = [dotted(getattr(decorator, "func", decorator)) for decorator in node.decorator_list]
                if any("dataclass" in name for name in decorators) or "Tap" in map(dotted, node.bases):
                    fields = [field for field in node.body if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)]
                    found += [of_field(field, parser) for field in fields]
        return found

    def own_options(self):
        """The options of a script that splits the words of its command line itself, and the places of its values."""
        found = {"places": [], "options": []}
        if self.parses_arguments() or not self.files:
            return found
        main = self.files[0]
        for node in main.of(ast.Assign):
            value = node.value
            if isinstance(value, ast.Call) and dotted(value.func) in ("int", "str", "float") and value.args:
                value = value.args[0]
            if isinstance(value, ast.Subscript) and dotted(value.value) == "sys.argv" and isinstance(node.targets[0], ast.Name):
                place = literal(value.slice)
                if place and place.isdigit() and int(place):
                    found["places"].append([node.targets[0].id, int(place)])
        splits = [call for call in self.named("split", "rsplit", "partition", "rpartition") if call.args and literal(call.args[0]) == "="]
        if not splits or not self.has("sys.argv"):
            return found
        names = self.settable(main)
        for word in self.words:
            path = os.path.join(self.cwd, word)
            text = read(path) if word.endswith(".py") and os.path.isfile(path) else None
            known = assignments(File(path, text)) if text is not None else {}
            names.update((name, value) for name, value in known.items() if name in names)
        dashes = any(
            any(reads in file.text for reads in ("argv", "split('=')", 'split("="'))
            and any(sign in file.text for sign in ("'--'", '"--"', "lstrip('-')", 'lstrip("-")', "[2:]"))
            for file in self.files
        )
        for name, value in sorted(names.items()):
            strings = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            found["options"].append([("--" if dashes else "") + name, number_or_literal(value), strings])
        return found

    def settable(self, main):
        """The names that can be set: the script's globals, attributes of a config object, or keys of a dictionary."""
        if self.has("globals()"):
            return assignments(main)
        if not self.has("setattr("):
            pairs = [pair for node in main.of(ast.Dict) for pair in zip(node.keys, node.values)]
            is_name = lambda key: isinstance(key, ast.Constant) and str(key.value).isidentifier()  # noqa: E731
            return {str(key.value): value for key, value in pairs if is_name(key) and literal(value) is not None}
        # The parts of a config come from classes: `C.trainer = Trainer.get_default_config()`, with `C.batch_size = 64` in
        # that class, gives `trainer.batch_size`.
        classes = {}
        for file in self.files:
            for node in file.of(ast.ClassDef):
                classes.setdefault(node.name, {}).update(attributes(node))
        names = {}
        for node in main.of(ast.Assign):
            made = node.value
            if isinstance(made, ast.Call) and not made.args and isinstance(made.func, ast.Attribute):
                path = dotted(node.targets[0]).partition(".")[2]
                below = classes.get(dotted(made.func.value), {}) if path else {}
                names.update((path + "." + name, value) for name, value in below.items())
        for node in main.tree.body:
            if not isinstance(node, ast.ClassDef):
                names.update(attributes(node))
        return names


def read(path):
    try:
        with open(path, "rb") as source:
            return source.read(LARGEST).decode("utf-8-sig", errors="replace")
    except OSError:
        return None


def of_variable(node):
    """The name in `os.environ["NAME"]`."""
    name = node.slice.value if isinstance(node.slice, ast.Constant) else None
    return name if dotted(node.value).endswith("environ") else None


def shown_text(node, units):
    """The text of a string without colours, with `{}` for each value; `units` are the variables that hold a unit."""
    if isinstance(node, ast.JoinedStr):
        shown = lambda part: units.get(dotted(getattr(part, "value", None)), "{}")  # noqa: E731
        text = "".join(part.value if isinstance(part, ast.Constant) else shown(part) for part in node.values)
    else:
        text = PLACEHOLDER.sub("{}", node.value).replace("%%", "%") if isinstance(node.value, str) else ""
    return COLOUR.sub("", text)


def rates_in(text):
    """The rates in a shown text: their units, their patterns, and the words before each."""
    found, end = [], 0
    for unit in RATE_UNIT.finditer(text):
        before, behind = text[end : unit.start()], text[unit.end() :]
        name = re.sub(r"\s+", r"\\s+", unit.group())
        value = re.search(r"(?:\{\}|[0-9][0-9.,]*)\s*[kKMG]?(" + BETWEEN + ")$", before)
        if "_per_" in name and not (value and value.group(1)):
            value, before = None, before or name  # `f"{prefix}samples_per_sec"` is a key
        is_near = value and not value.group(1).strip(" ([")
        # In `step {} samples/s {}`, the first value is the step.
        counts = re.search(r"(?i)\b(?:step|it|iter|iteration|epoch|batch)[\s=:#\[(]*\{\}\s*$", before)
        sign = re.match(r"""['"\s)\]]*[:=]""", behind)
        follows = re.match(r"\s*\{\}", behind)
        after = re.match(r"[\s)\]|│┃]*\{\}", behind)
        if sign:
            pattern = name + r"""['"]?[)\]]?\s*[:=]\s*""" + NUMBER
        elif follows and (not is_near or counts):
            pattern = name + r"\s*" + NUMBER
        elif value or not before.strip(" ,([|│┃'\""):
            gap = value.group(1) if value else before
            pattern = NUMBER + (BETWEEN if gap.strip() else r"\s*") + name
            before = before[: value.start()] if value else ""
        elif after:
            pattern = name + r"[\s)\]|│┃]*" + NUMBER
        else:
            continue
        is_label = not pattern.startswith(NUMBER)
        # The line's first words and the words next to the rate say what the rate is of.
        before = re.split(r"[\r\n]", before)[-1]
        chunks = before.split("{}")
        label = chunks[-1] if end else chunks[0] + " " + chunks[-1]
        words = re.sub(r"^(?:\{\}|[^A-Za-z{])*", "", before)
        literals = [re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", chunk) for chunk in words.split("{}")]
        found.append({
            "start": unit.start(),
            "unit": re.sub("_per_| per ", "/", unit.group()),
            "pattern": pattern,
            "words": re.sub(r"\s+", r"\\s*", ".*?".join(literals)),
            "begins": not end and (words or before).strip() == before.strip(),
            "is_of_steps": bool(unit.group("steps") or unit.group("time")),
            "is_training": bool(OF_TRAINING.search(label)),
            "is_other": bool(OF_OTHERS.search(label)) and not OF_TRAINING.search(label),
        })
        value = re.match(r"""[^{]*\{\}""", behind) if is_label else None
        end = unit.end() + (value.end() if value else 0)
    return found


def parameters(arguments):
    """The names, annotations and defaults of a function's parameters."""
    plain = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults + arguments.kw_defaults
    return [(known.arg, known.annotation, default) for known, default in zip(plain + arguments.kwonlyargs, defaults)]


def assignments(file):
    """The first assignment of each name at the level of the module."""
    names = {}
    for node in file.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value and isinstance(targets[0], ast.Name):
            if targets[0].id[0].isalpha():
                names.setdefault(targets[0].id, node.value)
    return names


def attributes(tree):
    """The literals that code assigns to attributes of other objects: `C.batch_size = 64`."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            root, _, name = dotted(node.targets[0]).partition(".")
            if name and root != "self" and number_or_literal(node.value) is not None:
                names.setdefault(name, node.value)
    return names


def valued(choices=()):
    return {"Value": {"choices": list(choices)}}


def argument(names, kind, default=None, is_required=False):
    default = None if default == "None" else default
    return {"names": names, "kind": kind, "default": default, "is_required": is_required}


def declared(call):
    """The argument that a call of a parser declares."""
    given = [value for value in map(literal, call.args) if value is not None]
    flags = [name for value in given for name in value.split("/") if name.startswith("-")]
    default = literal(keyword(call, "default"))
    kind = valued(literals(keyword(call, "choices")))
    name = last(call)
    if name == "add_argument":
        action = keyword(call, "action")
        if literal(action) in ("store_true", "store_false"):
            kind = "Switch"
        elif literal(action) is not None:
            return None
        elif action is not None and dotted(action).endswith("BooleanOptionalAction"):
            off = next(("--no-" + flag[2:] for flag in flags if flag.startswith("--")), None)
            if off is None:
                return None
            kind = {"Pair": {"off": off}}
    elif name == "option":
        off = next((flag for flag in flags if flag.startswith("--no-")), None)
        choice = keyword(call, "type")
        if off:
            kind = {"Pair": {"off": off}}
            flags.remove(off)
        elif is_true(keyword(call, "is_flag")):
            kind = "Switch"
        else:
            is_choice = isinstance(choice, ast.Call) and last(choice) == "Choice" and choice.args
            kind = valued(literals(choice.args[0]) if is_choice else [])
    elif name in ("DEFINE_bool", "DEFINE_boolean", "DEFINE_integer", "DEFINE_enum", "DEFINE_string"):
        if not call.args or literal(call.args[0]) is None:
            return None
        flags, default = ["--" + literal(call.args[0])], literal(call.args[1]) if len(call.args) > 1 else None
        kind = valued(literals(call.args[2]) if name == "DEFINE_enum" and len(call.args) > 2 else [])
        if name in ("DEFINE_bool", "DEFINE_boolean"):
            kind = {"Pair": {"off": "--no" + literal(call.args[0])}}
    else:
        return None
    return argument(flags, kind, default, is_true(keyword(call, "required"))) if flags else None


def of_fire(name, _, default):
    return argument(["--" + name], valued(), literal(default), default is None)


def of_typer(name, annotation, default):
    parts = [part for node in (default, annotation) if node is not None for part in ast.walk(node)]
    option = next((part for part in parts if isinstance(part, ast.Call) and last(part) == "Option"), None)
    given = [literal(value) for value in option.args] if option else []
    names = [value for value in given if value and value.startswith("-")] or ["--" + name.replace("_", "-")]
    value = literal(default)
    if value is None and given and not (given[0] or "").startswith("-"):
        value = given[0]
    kind = valued()
    if (dotted(annotation) == "bool" or value in ("True", "False")) and names[0].startswith("--"):
        kind = {"Pair": {"off": "--no-" + names[0][2:]}}
    return argument(names, kind, value)


def of_field(field, parser):
    name = field.target.id.replace("_", "-") if parser == "tyro" else field.target.id
    default = literal(field.value)
    if isinstance(field.value, ast.Call) and last(field.value) == "field":
        default = literal(keyword(field.value, "default"))
    kind = valued()
    if isinstance(field.annotation, ast.Subscript) and dotted(field.annotation.value).endswith("Literal"):
        choices = field.annotation.slice
        kind = valued(literals(choices) or filter(None, [literal(choices)]))
    if dotted(field.annotation) == "bool":
        kinds = {"transformers": "MaybeValue", "tyro": {"Pair": {"off": "--no-" + name}}, "tap": "Switch"}
        kind = kinds.get(parser, kind)
    return argument(["--" + name], kind, default, field.value is None)


def main(asked):
    script = Script(asked)
    constants, members = script.values()
    shared = re.compile(r"(?m)^(?!\s*#).*accum.*//=|^(?!\s*#).*//=.*accum")
    return {
        "modules": sorted(script.modules),
        "files": [{"path": file.path, "calls": file.calls()} for file in script.files],
        "constants": constants,
        "members": members,
        "arguments": script.arguments(),
        "own_options": script.own_options(),
        "parses_arguments": script.parses_arguments(),
        "has_loader": script.has_loader(),
        "spawns_ranks": script.spawns_ranks(),
        "launcher_variable": script.launcher_variable(),
        "shares_accumulation": any(shared.search(file.text) for file in script.files),
        "speaks_protocol": script.has("GPUTUNE_SOCKET"),
        "printed_rate": script.printed_rate(),
    }


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
