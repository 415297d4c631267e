//! What a change leaves as it was, file by file.

use super::*;

fn change(name: &str, value: impl Into<Value>) -> Change {
    Change { name: name.to_owned(), value: value.into(), path: None }
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
    let changes = [
        change("batch_size", 256),
        change("precision", "bf16"),
        change("workers", 4),
        at("pin", "loader.pin.memory", true),
    ];
    assert_eq!(
        edited("toml", text, &changes),
        "# top\r\nbatch_size   =  256 # per device\r\nprecision = 'bf16'\r\n\r\n[ loader ]\r\nworkers = 4\r\npin.memory = true\r\n"
    );
    assert_eq!(edited("toml", "x = 0x20\n", &[change("x", 32)]), "x = 0x20\n", "the same value stays as it is written");
    assert_eq!(
        edited("toml", "\u{feff}a-b = {c = 1, d = [1, 2]}", &[at("c", "a-b.c", 2), at("d", "a-b.d.1", 9)]),
        "\u{feff}a-b = {c = 2, d = [1, 9]}"
    );
    assert_eq!(
        edited("toml", "[[run]]\nlr = 1.0\n[[run]]\nlr = 2.0\n", &[at("lr", "run.1.lr", 1e-5)]),
        "[[run]]\nlr = 1.0\n[[run]]\nlr = 0.00001\n"
    );
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
    assert_eq!(
        edited("yaml", text, &changes),
        "# top\ntrain:   # here\n    batch_size: 256   # per device\n    precision: bf16\n    name: 'c d'\n    quoted: \"no\"\n    empty: true\n    list: [1, 3]\n    runs:\n    - lr: 1.0e-5\n      x: 1\n"
    );
    assert_eq!(edited("yml", "größe: ä\nbatch-size: 1\r\n", &[change("batch_size", 2)]), "größe: ä\nbatch-size: 2\r\n");
    assert_eq!(
        edited("yaml", "a: on\n", &[change("a", "off")]),
        "a: \"off\"\n",
        "a word that YAML 1.1 takes for a boolean"
    );
    assert_eq!(edited("yaml", "{a: 1, b: {c: 2}}\n", &[change("c", 3)]), "{a: 1, b: {c: 3}}\n");
}

#[test]
fn json_keeps_order_and_indentation() {
    let text =
        "{\n\t\"z\": 1,\n\t\"train\" : { \"batch_size\":32, \"s\": \"a\\\"}b\" },\n\t\"a\": [ {\"x\": 1.5e3} ]\n}\n";
    let changes = [change("batch_size", 256), change("z", true), at("x", "a.0.x", 0.5)];
    assert_eq!(
        edited("json", text, &changes),
        "{\n\t\"z\": true,\n\t\"train\" : { \"batch_size\":256, \"s\": \"a\\\"}b\" },\n\t\"a\": [ {\"x\": 0.5} ]\n}\n"
    );
}

#[test]
fn what_is_missing_is_added_where_its_neighbours_are() {
    assert_eq!(
        added("toml", "a = 1 # x\n\n[t]\nb = 2", &[change("c", 3), at("d", "t.d", "x")]),
        "a = 1 # x\nc = 3\n\n[t]\nb = 2\nd = \"x\"\n"
    );
    assert_eq!(
        added("toml", "[t]\n  [t.u]\n  b = 2\n", &[change("c", 3), at("d", "t.d", 4)]),
        "c = 3\n[t]\nd = 4\n  [t.u]\n  b = 2\n"
    );
    assert_eq!(added("toml", "t = { a = 1 }\n", &[at("b", "t.b", 2)]), "t = { a = 1, b = 2 }\n");
    assert_eq!(added("toml", "", &[change("a", 1), change("b", 2)]), "a = 1\nb = 2\n");
    assert_eq!(
        added("yaml", "# x\na: 1 # one\nt:\n  b: 2\n", &[change("c", 3), at("d", "t.d", "no")]),
        "# x\na: 1 # one\nc: 3\nt:\n  b: 2\n  d: \"no\"\n"
    );
    assert_eq!(
        added("yaml", "t:\n  u:\n    b: 2\n", &[at("d", "t.d", 4), change("e", 5)]),
        "e: 5\nt:\n  d: 4\n  u:\n    b: 2\n"
    );
    assert_eq!(added("yaml", "a: {}\n", &[at("b", "a.b", 2)]), "a: {b: 2}\n");
    assert_eq!(added("yaml", "# nothing\n", &[change("b", 2)]), "# nothing\nb: 2\n");
    assert_eq!(
        added("json", "{\n  \"a\": 1\n}\n", &[change("b", "x"), change("c", 2)]),
        "{\n  \"a\": 1,\n  \"b\": \"x\",\n  \"c\": 2\n}\n"
    );
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
