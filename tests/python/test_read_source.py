"""Tests of `read_source`, which reads a script's source. `gputune init` runs it in the script's interpreter."""

import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "asking"))

import read_source

TRANSFORMERS = """
from transformers import HfArgumentParser, TrainingArguments
@dataclass
class A:
    path: str = field(
        default='x', metadata={'help': 'a (b)'}
    )
HfArgumentParser((A, TrainingArguments))
"""
CALLS = '''
# DataLoader(batch_size=1)
"""DataLoader(batch_size=2)"""
text = "DataLoader(batch_size=3)"
class DataLoader(object): pass
loader = torch.utils.data.DataLoader(
    Data(a, b=[1, 2]),  # the data, with a comma
    batch_size=args.batch_size or 64, shuffle = True,
    collate_fn=lambda x: x, num_workers=4, **more)
(err / 4).backward()
'''
SPLITS = "for arg in sys.argv[1:]:\n    key, value = arg.split('=')\n    "


def source(text):
    return read_source.main({"text": text, "cwd": "/nowhere", "words": []})


def shown(argument):
    kind = argument["kind"]
    sign = {"Switch": "!", "MaybeValue": "?"}.get(kind) if isinstance(kind, str) else None
    if sign is None:
        sign = "/" + kind["Pair"]["off"] if "Pair" in kind else "|".join(kind["Value"]["choices"])
    required = " required" if argument["is_required"] else ""
    return f"{','.join(argument['names'])}{sign} {argument['default'] or '-'}{required}"


class Reading(unittest.TestCase):
    def test_calls_are_found_where_they_are_and_nowhere_else(self):
        calls = source(CALLS)["files"][0]["calls"]
        self.assertEqual([call["name"] for call in calls], ["torch.utils.data.DataLoader", "Data", "backward"])
        loader = calls[0]
        self.assertEqual((loader["line"], loader["positional"]), (6, ["Data(a, b=[1, 2])", "**more"]))
        named = [("batch_size", "args.batch_size or 64"), ("shuffle", "True"), ("collate_fn", "lambda x: x"), ("num_workers", "4")]
        self.assertEqual(loader["named"], named)
        for text in ["def broken(:", "f(\0)", "(" * 5000, "f'{a", "\ufeffimport x", "x = -y", "class A: x: int"]:
            self.assertEqual(source(text)["files"][0]["calls"], [], text)

    def test_arguments_are_declared_by_parsers_functions_and_dataclasses(self):
        for text, expected in [
            (
                "p.add_argument('-b', '--batch-size', type=int, default=32, required=True)\n"
                "p.add_argument('--amp', action='store_true')\np.add_argument('--precision', choices=['fp32', 'bf16'])\n"
                "p.add_argument('--compile', action=argparse.BooleanOptionalAction)\np.add_argument('data')\n"
                "p.add_argument('--verbose', action='count')",
                ["-b,--batch-size 32 required", "--amp! -", "--precisionfp32|bf16 -", "--compile/--no-compile -"],
            ),
            (
                "@click.option('--amp/--no-amp', default=False)\n@click.option('--dtype', type=click.Choice(['a', 'b']))\n"
                "@click.option('--fast', is_flag=True)\ndef main(): ...",
                ["--amp/--no-amp False", "--dtypea|b -", "--fast! -"],
            ),
            (
                "flags.DEFINE_integer('batch', 8, 'size')\nflags.DEFINE_bool('amp', True, '')\n"
                "flags.DEFINE_enum('dtype', 'a', ['a', 'b'], '')",
                ["--batch 8", "--amp/--noamp True", "--dtypea|b a"],
            ),
            (
                "import typer\ndef main(batch_size: int = 32, amp: bool = False, data: str = typer.Option('x', '--data')): ...\n"
                "typer.run(main)",
                ["--batch-size 32", "--amp/--no-amp False", "--data x"],
            ),
            (
                "import typer\napp = typer.Typer()\n@app.command()\ndef fit(bs: int = typer.Option(16, help='size')): ...\n"
                "def other(x=1): ...",
                ["--bs 16"],
            ),
            (
                "import fire\ndef train(batch_size=8, *, amp=False, data): ...\nfire.Fire(train)",
                ["--batch_size 8", "--amp False", "--data - required"],
            ),
            (
                "import tyro\n@dataclass\nclass Args:\n    batch_size: int = 4  # per rank\n    rate: float = 1e-3\n"
                "    dtype: Literal['fp32', 'bf16'] = 'fp32'\n    amp: bool = False\n\n    def run(self):\n        x: int = 3\n",
                ["--batch-size 4", "--rate 1e-3", "--dtypefp32|bf16 fp32", "--amp/--no-amp False"],
            ),
            (
                "from tap import Tap\nclass Args(Tap):\n    batch_size: int = 4\n    amp: bool = False\n",
                ["--batch_size 4", "--amp! False"],
            ),
        ]:
            with self.subTest(text):
                self.assertEqual([shown(argument) for argument in source(text)["arguments"]], expected)
        found = [shown(argument) for argument in source(TRANSFORMERS)["arguments"]]
        for line in ["--path x", "--per_device_train_batch_size 8", "--bf16? False", "--dataloader_num_workers 0"]:
            self.assertIn(line, found)

    def test_a_loader_is_one_that_the_script_does_not_make_itself(self):
        for text, has in [
            ("import torch\nloader = torch.utils.data.DataLoader(d)", True),
            ("from torch.utils.data import DataLoader as Loader\nLoader(d)", True),
            ("class Endless(DataLoader): pass", True),
            ("from data import build\ntrain = get_dataloader(x)", True),
            ("import lightning as L", True),
            ("from timm.data import create_loader\ncreate_loader(d)", True),
            ("import transformers\ntransformers.Trainer(model)", True),
            ("import torch\n# a poor man's DataLoader\ndef get_batch(): return torch.randn(3)", False),
            ("class DataLoaderLite:\n  pass\nloader = DataLoaderLite(4)", False),
            ("def data_loader(x): return x\ndata_loader(3)", False),
            ("print('DataLoader(d)')\nyaml.load(f, Loader=yaml.SafeLoader)", False),
            ("", False),
        ]:
            with self.subTest(text):
                self.assertEqual(source(text)["has_loader"], has)

    def test_only_what_is_always_spawned_makes_ranks(self):
        for text, spawns in [
            ("import torch.multiprocessing as mp\nif __name__ == '__main__':\n    mp.spawn(main, nprocs=2)", True),
            ("import torch.multiprocessing as mp\nif args.many:\n    mp.spawn(f)\nelse:\n    f()", False),
            ("import torch.multiprocessing as mp\ndef run():\n    for x in y:\n        mp.spawn(f)", True),
            ("import os\nos.spawn(f)", False),
        ]:
            with self.subTest(text):
                self.assertEqual(source(text)["spawns_ranks"], spawns)

    def test_a_launchers_variable_that_is_not_asked_for_is_needed(self):
        for text, needs in [
            ("rank = int(os.environ['RANK'])", "RANK"),
            ("ddp = int(os.environ.get('RANK', -1)) != -1\nif ddp: r = int(os.environ['RANK'])", None),
            ("if 'RANK' in os.environ: r = os.environ[\"RANK\"]", None),
            ("os.environ['RANK'] = '0'\nr = os.environ['RANK']", None),
            (
                "import torch.distributed\nenv = {key: os.environ[key] for key in (\"MASTER_ADDR\", \"RANK\", \"X\")}",
                "RANK",
            ),
            ("if args.url == 'env://':\n    size = int(os.environ['WORLD_SIZE'])", None),
            ("def main():\n    rank = int(os.environ['RANK'])", "RANK"),
            ("x = os.environ['HOME']", None),
        ]:
            with self.subTest(text):
                self.assertEqual(source(text)["launcher_variable"], needs)

    def test_the_number_of_a_rate_is_found_on_its_side_of_the_unit(self):
        for text, printed, number in [
            ('print(f"step {step}: {rate:,.1f} samples/s")', "step 4: 1,461.2 samples/s", "1,461.2"),
            ('print(f"step {step} samples/s: {rate:.1f}")', "step 40 samples/s: 812.3", "812.3"),
            ('print("step %d images/sec = %.1f" % (step, rate))', "step 40 images/sec = 812.3", "812.3"),
            ('log({"tokens/s": rate})', "{'tokens/s': 1.5e3}", "1.5e3"),
            ('print({"samples/s": rate, "step": step})', "{'samples/s': 568.6, 'step': 40}", "568.6"),
            ('print(f"samples/s: {rate:.1f}, loss: 0.31")', "samples/s: 568.6, loss: 0.31", "568.6"),
            ('print(f"step {step} samples/s {rate:.1f}")', "step 40 samples/s 812.3", "812.3"),
            ('print("step %d | samples/s %.1f | loss" % (step, rate))', "step 40 | samples/s 812.3 | loss", "812.3"),
            ('print("samples/s", rate, step)', "samples/s 812.3 40", "812.3"),
            ('print(f"step {step} throughput (samples/s): {rate}")', "step 40 throughput (samples/s): 812.3", "812.3"),
            ('print(f"step {step}: {rate} [samples/s]")', "step 40: 812.3 [samples/s]", "812.3"),
            ('print(f"speed {rate}, samples/s, step {step}")', "speed 812.3, samples/s, step 40", "812.3"),
            ('print(f"│ {step} │ {rate} │ samples/s │")', "│ 40 │ 812.3 │ samples/s │", "812.3"),
            ('print(f"\\x1b[32m{rate}\\x1b[0m samples/s")', "812.3 samples/s", "812.3"),
            ('print(f"load {a} samples/s, train {b} samples/s")', "load 5625.0 samples/s, train 571.0 samples/s", "571.0"),
            ('print(f"{a} samples/s (mean {b} samples/s)")', "571.0 samples/s (mean 9.0 samples/s)", "571.0"),
            ('print(f"eta {a} s/it, {b} samples/s")', "eta 0.3 s/it, 571.0 samples/s", "571.0"),
        ]:
            with self.subTest(text):
                pattern, _ = source(text)["printed_rate"]
                self.assertEqual(re.search(pattern, printed).group(1), number)
        for text in [
            "# about 300 samples/s: print this",
            "print(rate)  # in samples/s",
            '"""Prints {rate} samples/s."""',
            "def f():\n    '''Returns the\n    {rate} in samples/s.'''\n    print(1)",
            "rate = samples/s",
            "parser.add_argument('--rate', help=f'at most {most} samples/s')",
            "print('| step | samples/s |\\n' + f'| {step} | {rate} |')",
        ]:
            with self.subTest(text):
                self.assertIsNone(source(text)["printed_rate"])

    def test_the_unit_of_a_rate_has_several_spellings(self):
        for text, printed, unit in [
            ('print(f"step {step}: {ms:.1f} ms/step")', "step 4: 20.5 ms/step", "ms/step"),
            ('print(f"step {step}: {s:.3f} s/it")', "step 4: 20.5 s/it", "s/it"),
            ('print(f"{rate} samples per second")', "20.5 samples per second", "samples/second"),
            ('print(json.dumps({"samples_per_sec": rate, "loss": 1}))', '{"samples_per_sec": 20.5, "loss": 1}', "samples/sec"),
            ('unit = "samples/s"\nprint(f"step {step}: {rate} {unit}")', "step 4: 20.5 samples/s", "samples/s"),
        ]:
            with self.subTest(text):
                pattern, found = source(text)["printed_rate"]
                self.assertEqual((re.search(pattern, printed).group(1), found), ("20.5", unit))

    def test_the_rate_of_the_training_is_preferred(self):
        for text, printed, passed in [
            ("print('disk at 90.0 samples/s')\nwhile True:\n    print(f'{rate} img/s')", "5 img/s", "90.0 samples/s"),
            ("print(f'{a} samples/s')\ndef show():\n    print(f'{b} img/s')\nfor x in y: show()", "5 img/s", "9 samples/s"),
            ("p.add_argument('--x', help=f'{most} samples/s')\nprint(f'{rate} img/s')", "5 img/s", "9 samples/s"),
            ("print(f'eval {a} samples/s')\nprint(f'train {b} samples/s')", "train 5 samples/s", "eval  9 samples/s"),
            ("print(f'test: {a} it/s')\nprint(f'step {i}: {b} it/s')", "step 4: 5 it/s", "test: 9 it/s"),
            ("print(f'test step {i}: {a} it/s')\nprint(f'step {i}: {b} it/s')", "step 4: 5 it/s", "test step 4: 9 it/s"),
            ("print(f'val samples/s: {a}')\nprint(f'train samples/s: {b}')", "train samples/s: 5", "val samples/s: 9"),
            ("print(f'Eval {i} speed {a} it/s')\nprint(f'Train {i} speed {b} it/s')", "Train 4 speed 5 it/s", "Eval 4 speed 9 it/s"),
        ]:
            with self.subTest(text):
                pattern, _ = source(text)["printed_rate"]
                self.assertEqual(re.search(pattern, printed).group(1), "5")
                self.assertIsNone(re.search(pattern, passed))
        pattern, _ = source("print(f'eval {rate} samples/s')")["printed_rate"]
        self.assertEqual(re.search(pattern, "eval 9 samples/s").group(1), "9")

    def test_values_are_known_if_all_assignments_agree(self):
        found = source("BATCH = 24\nn = 1\nn = 2\ncfg.size = 8\nd = {'depth': 3}\ndef f(width: int = 5): ...\nx = f()")
        self.assertEqual(found["constants"], {"BATCH": "24", "n": None, "width": "5"})
        self.assertEqual(found["members"], {"size": "8", "depth": "3"})

    def test_a_script_that_splits_its_words_has_options_of_its_own(self):
        module = (
            "import sys\nbatch_size = 12 # small\nsteps = 5 * 8\ndtype = 'bfloat16' if x else 'float16'\n"
            f"{SPLITS}globals()[key[2:]] = value\n"
        )
        options = [["--batch_size", "12", []], ["--dtype", None, ["bfloat16", "float16"]], ["--steps", "40", []]]
        parts = (
            "import sys\ndef get_config():\n    C = CN()\n    C.system.seed = 3\n    C.trainer = Trainer.defaults()\n"
            "    C.trainer.lr = 5e-4\nclass Trainer:\n    def defaults():\n        C.num_workers = 4\n        C.lr = 1\n"
            f"{SPLITS}setattr(self, key[2:], value)\n"
        )
        for text, expected in [
            (module, options),
            ("import argparse\nargparse.ArgumentParser().parse_args()\n" + module, []),
            (parts, [["--system.seed", "3", []], ["--trainer.lr", "5e-4", []], ["--trainer.num_workers", "4", []]]),
            (
                f"import sys\nconfig = {{\n  'batch_size': 64, # each\n  \"amp\": True}}\n{SPLITS}config[key] = value\n",
                [["amp", "True", []], ["batch_size", "64", []]],
            ),
            ("x = 1", []),
        ]:
            with self.subTest(text):
                self.assertEqual(source(text)["own_options"]["options"], expected)
        places = source("import sys\ndata = sys.argv[1]\nbatch_size = int(sys.argv[2])\n")["own_options"]["places"]
        self.assertEqual(places, [["data", 1], ["batch_size", 2]])

    def test_the_modules_of_the_project_and_files_that_the_command_names_are_read(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for path, text in {
                "train.py": f"import sys, json\nfrom parts.data import load\nbatch_size = 4\nexec(open('configurator.py').read())\n",
                "configurator.py": f"{SPLITS}globals()[key] = value\n",
                "parts/__init__.py": "",
                "parts/data.py": "from . import near\nfrom ..above import x\n",
                "parts/near.py": "import torch.nn as nn\n",
                "above.py": "",
                "small.py": "batch_size = 2\nother = 3\n",
            }.items():
                (folder / path).parent.mkdir(exist_ok=True)
                (folder / path).write_text(text)
            found = read_source.main({"script": str(folder / "train.py"), "cwd": name, "words": ["small.py"]})
            files = [str(pathlib.Path(file["path"]).relative_to(folder)) for file in found["files"]]
            expected = ["train.py", "configurator.py", "parts/__init__.py", "parts/data.py", "parts/near.py", "above.py"]
            self.assertEqual(sorted(files), sorted(expected))
            self.assertEqual(files[0], "train.py")
            self.assertTrue({"torch", "torch.nn", "parts.data"} <= set(found["modules"]))
            self.assertEqual(found["own_options"]["options"], [["batch_size", "2", []]])


if __name__ == "__main__":
    unittest.main()
