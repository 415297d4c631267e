//! Tests for each language that a change leaves everything else unchanged.

use super::*;

fn change(name: &str, value: impl Into<Value>) -> Change {
    Change { name: name.to_owned(), value: value.into(), path: None, among: Vec::new() }
}

fn at(name: &str, path: &str, value: impl Into<Value>) -> Change {
    Change { path: Some(path.to_owned()), ..change(name, value) }
}

fn language(ending: &str) -> &'static Language {
    Language::of(Path::new(&format!("x.{ending}"))).unwrap()
}

fn edited(ending: &str, text: &str, changes: &[Change]) -> String {
    language(ending).edited(text, changes, false).unwrap()
}

fn added(ending: &str, text: &str, changes: &[Change]) -> String {
    language(ending).edited(text, changes, true).unwrap()
}

fn refused(ending: &str, text: &str, changes: &[Change]) -> String {
    let Refusal { message, hint } = language(ending).edited(text, changes, false).unwrap_err();
    format!("{message}; {hint}")
}

#[test]
fn toml_keeps_everything_but_the_values() {
    let text = "# top\r\nbatch_size   =  32 # per device\r\nprecision = 'fp32'\r\n\r\n[ loader ]\r\nworkers = 0x2\r\npin.memory = false\r\n";
    let expected = "# top\r\nbatch_size   =  256 # per device\r\nprecision = 'bf16'\r\n\r\n[ loader ]\r\nworkers = 4\r\npin.memory = true\r\n";
    let pin = at("pin", "loader.pin.memory", true);
    let changes = [change("batch_size", 256), change("precision", "bf16"), change("workers", 4), pin];
    assert_eq!(edited("toml", text, &changes), expected);
    assert_eq!(edited("toml", "x = 0x20\n", &[change("x", 32)]), "x = 0x20\n", "the same value stays as it is written");
    let changes = [at("c", "a-b.c", 2), at("d", "a-b.d.1", 9)];
    let expected = "\u{feff}a-b = {c = 2, d = [1, 9]}";
    assert_eq!(edited("toml", "\u{feff}a-b = {c = 1, d = [1, 2]}", &changes), expected);
    let expected = "[[run]]\nlr = 1.0\n[[run]]\nlr = 0.00001\n";
    assert_eq!(edited("toml", "[[run]]\nlr = 1.0\n[[run]]\nlr = 2.0\n", &[at("lr", "run.1.lr", 1e-5)]), expected);
}

#[test]
fn yaml_keeps_everything_but_the_values() {
    let text = "# top\ntrain:   # here\n    batch_size: 32   # per device\n    precision: fp32\n    name: 'a'\n    quoted: \"b\"\n    empty:\n    list: [1, 2]\n    runs:\n    - lr: 0.1\n      x: 1\n";
    let changes = [
        change("batch_size", 256),
        change("precision", "bf16"),
        change("name", "c d"),
        change("quoted", "no"),
        change("empty", true),
        at("list", "train.list.1", 3),
        at("lr", "train.runs.0.lr", 1e-5),
    ];
    let expected = "# top\ntrain:   # here\n    batch_size: 256   # per device\n    precision: bf16\n    name: 'c d'\n    quoted: \"no\"\n    empty: true\n    list: [1, 3]\n    runs:\n    - lr: 1.0e-5\n      x: 1\n";
    assert_eq!(edited("yaml", text, &changes), expected);
    assert_eq!(edited("yml", "größe: ä\nbatch-size: 1\r\n", &[change("batch_size", 2)]), "größe: ä\nbatch-size: 2\r\n");
    let why = "a word for a boolean in YAML 1.1 is replaced by its opposite, without quotes";
    assert_eq!(edited("yaml", "a: on\n", &[change("a", "off")]), "a: off\n", "{why}");
    assert_eq!(edited("yaml", "{a: 1, b: {c: 2}}\n", &[change("c", 3)]), "{a: 1, b: {c: 3}}\n");
}

#[test]
fn json_keeps_order_and_indentation() {
    let text = "{\n\t\"z\": false,\n\t\"train\" : { \"batch_size\":32, \"s\": \"a\\\"}b\" },\n\t\"a\": [ {\"x\": 1.5e3} ]\n}\n";
    let changes = [change("batch_size", 256), change("z", true), at("x", "a.0.x", 0.5)];
    let expected =
        "{\n\t\"z\": true,\n\t\"train\" : { \"batch_size\":256, \"s\": \"a\\\"}b\" },\n\t\"a\": [ {\"x\": 0.5} ]\n}\n";
    assert_eq!(edited("json", text, &changes), expected);
}

#[test]
fn what_is_missing_is_added_where_its_neighbours_are() {
    let expected = "a = 1 # x\nc = 3\n\n[t]\nb = 2\nd = \"x\"\n";
    assert_eq!(added("toml", "a = 1 # x\n\n[t]\nb = 2", &[change("c", 3), at("d", "t.d", "x")]), expected);
    let expected = "c = 3\n[t]\nd = 4\n  [t.u]\n  b = 2\n";
    assert_eq!(added("toml", "[t]\n  [t.u]\n  b = 2\n", &[change("c", 3), at("d", "t.d", 4)]), expected);
    assert_eq!(added("toml", "t = { a = 1 }\n", &[at("b", "t.b", 2)]), "t = { a = 1, b = 2 }\n");
    assert_eq!(added("toml", "t = {a={b=1}}\n", &[at("c", "t.c", 2)]), "t = {a={b=1}, c = 2}\n");
    assert_eq!(added("toml", "", &[change("a", 1), change("b", 2)]), "a = 1\nb = 2\n");
    let expected = "# x\na: 1 # one\nc: 3\nt:\n  b: 2\n  d: \"no\"\n";
    assert_eq!(added("yaml", "# x\na: 1 # one\nt:\n  b: 2\n", &[change("c", 3), at("d", "t.d", "no")]), expected);
    let expected = "e: 5\nt:\n  d: 4\n  u:\n    b: 2\n";
    assert_eq!(added("yaml", "t:\n  u:\n    b: 2\n", &[at("d", "t.d", 4), change("e", 5)]), expected);
    assert_eq!(added("yaml", "a: {}\n", &[at("b", "a.b", 2)]), "a: {b: 2}\n");
    assert_eq!(added("yaml", "# nothing\n", &[change("b", 2)]), "# nothing\nb: 2\n");
    let expected = "{\n  \"a\": 1,\n  \"b\": \"x\",\n  \"c\": 2\n}\n";
    assert_eq!(added("json", "{\n  \"a\": 1\n}\n", &[change("b", "x"), change("c", 2)]), expected);
    assert_eq!(added("json", "{\"t\": {}}", &[at("b", "t.b", 2)]), "{\"t\": {\"b\": 2}}");
    let error = language("toml").edited("a = 1\n", &[at("b", "t.b", 2)], true).unwrap_err();
    assert_eq!(error.message, "there is no table `t` to add `b` to");
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_to_do() {
    let all = [
        refused("toml", "batch = 1\nworkers = 2\n", &[change("batch_size", 2), change("num_workers", 2)]),
        refused("yaml", "x: 1\n", &[change("batch_size", 2)]),
        refused("json", "{}", &[change("batch_size", 2)]),
        refused("yaml", "a:\n  lr: 1\nb:\n  lr: 2\n", &[change("lr", 2)]),
        refused("toml", "lr = [1]\n", &[change("lr", 2)]),
        refused("yaml", "lr: &x 1\nother: *x\n", &[change("lr", 2)]),
        refused("yaml", "lr: |\n  1\n", &[change("lr", 2)]),
        refused("yaml", "a: 1\n---\na: 2\n", &[change("a", 2)]),
        refused("yaml", "a: 1\na: 2\n", &[change("a", 3)]),
        refused("json", "{\"a\": 1, \"a\": 2}", &[change("a", 3)]),
        refused("toml", "a = 1\na = 2\n", &[change("a", 3)]),
        refused("toml", "a = \n", &[change("a", 3)]),
        refused("yaml", "a: [1\n", &[change("a", 3)]),
        refused("yaml", "- 1\n", &[change("a", 3)]),
        refused("json", "{\"a\": 1,}", &[change("a", 3)]),
        refused("json", "[1]", &[change("a", 3)]),
        refused("toml", "a = 1\n", &[at("b", "a", 3), change("a", 3)]),
        Language::of(Path::new("train.ini")).unwrap_err().message,
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_difference_has_the_lines_that_differ() {
    assert_eq!(difference("a\nb\nc\n", "a\nB\nc\n"), "    2 - b\n    2 + B\n");
    assert_eq!(difference("a\nb\n", "a\nx\nb\n"), "    2 + x\n");
    assert_eq!(difference("a\n", "a\nb\n"), "    2 + b\n");
    assert_eq!(difference("a\n", "a\n"), "");
}

/// Returns a change of a parameter to one of these settings.
fn among(name: &str, path: &str, settings: &[&str], value: &str) -> Change {
    let among = settings.iter().map(|setting| Value::from(*setting)).collect();
    Change { name: name.to_owned(), value: value.into(), path: Some(path.to_owned()), among }
}

/// Returns the value that replaces `old` in the YAML line `key: old`; if the change is refused, the reason in brackets.
fn yaml(path: &str, old: &str, settings: &[&str], value: &str) -> String {
    let keys: Vec<&str> = path.split('.').collect();
    let (tables, key) = keys.split_at(keys.len() - 1);
    let mut text = String::new();
    for (depth, table) in tables.iter().enumerate() {
        text += &format!("{}{table}:\n", "  ".repeat(depth));
    }
    let front = format!("{text}{}{}: ", "  ".repeat(tables.len()), key[0]);
    let changes = [among("precision", path, settings, value)];
    match language("yaml").edited(&format!("{front}{old} # kept\n"), &changes, false) {
        Ok(edited) => edited.strip_prefix(&front).unwrap().strip_suffix(" # kept\n").unwrap().to_owned(),
        Err(Refusal { message, .. }) => format!("({})", message.rsplit("does not fit its format: ").next().unwrap()),
    }
}

#[test]
fn a_precision_keeps_the_words_of_the_file() {
    let searched: &[&str] = &["fp32", "tf32", "bf16", "fp16"];
    let mut all = String::new();
    for (path, olds) in [
        (
            "trainer.precision",
            &["bf16-mixed", "16-mixed", "\"32-true\"", "'bf16-true'", "32", "16", "bf16", "null", "transformer-engine"]
                [..],
        ),
        ("precision", &["bf16-mixed", "32-true", "bf16", "fp16", "BF16", "16", "\"16\"", "medium", "null", "${x}"]),
        ("mixed_precision", &["\"no\"", "no", "bf16", "fp16", "true", "null"]),
        ("model.torch_dtype", &["float32", "bfloat16", "torch.bfloat16", "torch.half", "auto"]),
        ("dtype", &["float32", "half", "FLOAT16"]),
        ("policy", &["float32", "mixed_bfloat16"]),
        ("bf16", &["true", "false", "\"True\""]),
        ("fp16.enabled", &["true"]),
        ("amp", &["true"]),
    ] {
        for old in olds {
            let becomes = searched.iter().map(|value| format!("{value} -> {}", yaml(path, old, searched, value)));
            all += &format!("{path}: {old}\n    {}\n", becomes.collect::<Vec<_>>().join("\n    "));
        }
    }
    insta::assert_snapshot!(all);
}

#[test]
fn lightnings_own_words_go_where_its_words_are() {
    let own: &[&str] = &["32-true", "bf16-true", "16-mixed"];
    assert_eq!(yaml("trainer.precision", "bf16-mixed", own, "bf16-true"), "bf16-true");
    assert_eq!(yaml("precision", "16-mixed", own, "32-true"), "32-true");
    assert_eq!(yaml("precision", "torch.float16", own, "32-true"), "torch.float32");
}

#[test]
fn numbers_answers_and_texts_keep_their_kind() {
    let all = [
        ("yaml", "a: \"32\"\n", change("a", 64), "a: \"64\"\n"),
        ("yaml", "a: '32'\n", change("a", 64), "a: '64'\n"),
        ("yaml", "a: 32.0\n", change("a", 64), "a: 64.0\n"),
        ("yaml", "a: 32\n", change("a", 64.0), "a: 64\n"),
        ("yaml", "a: yes\n", change("a", false), "a: no\n"),
        ("yaml", "a: True\n", change("a", false), "a: False\n"),
        ("yaml", "a: \"True\"\n", change("a", false), "a: \"False\"\n"),
        ("yaml", "a: 1\n", change("a", false), "a: 0\n"),
        ("yaml", "a: on\n", change("a", true), "a: on\n"),
        ("yaml", "a: auto\n", change("a", 4), "a: 4\n"),
        ("yaml", "a: \"it's\" # \"b\"\n", change("a", "c"), "a: \"c\" # \"b\"\n"),
        ("yaml", "a: 'it''s' # 'b'\n", change("a", "c"), "a: 'c' # 'b'\n"),
        ("yaml", "a: 0x20\n", change("a", 64), "a: 64\n"),
        ("yaml", "a: 1_024\n", change("a", 64), "a: 64\n"),
        ("yaml", "a: large\n", change("a", "_12"), "a: \"_12\"\n"),
        ("yaml", "a: large\n", change("a", "1_000"), "a: \"1_000\"\n"),
        ("yaml", "a: ~\n", change("a", 4), "a: 4\n"),
        ("yaml", "compile: true\n", change("compile", "off"), "compile: false\n"),
        ("yaml", "a: REDUCE\n", Change { path: None, ..among("a", "", &["reduce", "grow"], "grow") }, "a: GROW\n"),
        ("yaml", "a: max_speed\n", Change { path: None, ..among("a", "", &["max-speed", "a-b"], "a-b") }, "a: a_b\n"),
        ("json", "{\"a\": \"32\"}", change("a", 64), "{\"a\": \"64\"}"),
        ("json", "{\"a\": 1.5}", change("a", 2), "{\"a\": 2.0}"),
        ("json", "{\"a\": null}", change("a", 2), "{\"a\": 2}"),
        ("json", "{\"a\": \"false\"}", change("a", true), "{\"a\": \"true\"}"),
        ("toml", "a = \"32\"\n", change("a", 64), "a = \"64\"\n"),
        ("toml", "a = 1.5\n", change("a", 2), "a = 2.0\n"),
        ("toml", "a = 0\n", change("a", true), "a = 1\n"),
    ];
    for (ending, old, change, new) in all {
        assert_eq!(edited(ending, old, &[change]), new, "{ending}: {old}");
    }
}

#[test]
fn what_cannot_be_said_in_the_files_form_is_refused() {
    let lion = Change { path: None, ..among("a", "", &["adamw", "lion"], "lion") };
    for (ending, text, change, reason) in [
        ("yaml", "a: large\n", change("a", 4), "it is no number"),
        ("yaml", "a: _12\n", change("a", 4), "it is no number"),
        ("yaml", "a: 4\n", change("a", "large"), "it is a number"),
        ("yaml", "a: 7\n", change("a", true), "says more than yes or no"),
        ("yaml", "a: maybe\n", change("a", true), "says more than yes or no"),
        ("yaml", "a: true\n", change("a", 3), "it is no number"),
        ("yaml", "compile: true\n", change("compile", "max-autotune"), "do not say which mode"),
        ("yaml", "a: ${b}\n", change("a", 3), "refers to another setting"),
        ("yaml", "a: !tag 4\n", change("a", 3), "no number, text, true or false"),
        ("toml", "a = 1979-05-27\n", change("a", 3), "no number, text, true or false"),
        ("yaml", "a: sgd\n", lion, "none of the settings that were searched"),
    ] {
        let refused = refused(ending, text, &[change]);
        assert!(refused.contains(reason) && refused.contains("--skip"), "{text}: {refused}");
    }
}
