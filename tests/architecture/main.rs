//! The nine wings of the library (its top-level modules), and the command line above them. A wing uses only lower wings, and only
//! the items that their `mod.rs` shows.

mod house;

use std::fs;

use house::{House, rust_files, source};

/// The wings, from the lowest up.
const WINGS: &[&str] = &["model", "machine", "probe", "diagnosis", "demo", "search", "report", "spec", "init", "cli"];

/// A circle may have two files: a table and its row's type, for example.
const LARGEST_CIRCLE: usize = 2;
const MOST_CIRCLES: usize = 6;

fn floor(wing: &str) -> Option<usize> {
    WINGS.iter().position(|known| *known == wing)
}

#[test]
fn every_file_stands_in_a_wing() {
    for (module, file) in House::read().files {
        let known = floor(&module[0]).is_some() || ["lib", "main"].contains(&module[0].as_str());
        assert!(known, "{}: which wing is it of?", file.path.display());
    }
}

#[test]
fn a_wing_uses_only_lower_ones() {
    let house = House::read();
    let mut checked = 0;
    for (module, used) in house.uses() {
        let Some(own) = floor(&module[0]) else { continue };
        for other in used.iter().filter(|other| other[0] != module[0]) {
            checked += 1;
            let lower = floor(&other[0]).is_some_and(|floor| floor < own);
            assert!(lower, "`{}` may not use `{}`", module.join("::"), other.join("::"));
        }
    }
    assert!(checked > 300, "only {checked} uses were seen: does the test still read the code?");
}

/// From outside, a wing's items are `wing::Item`, or `wing::module::item` if its `mod.rs` shows the module.
#[test]
fn a_wing_is_entered_by_its_door() {
    let house = House::read();
    let is_module = |name: &String| name.starts_with(char::is_lowercase);
    for module in house.files.keys() {
        for path in house.named(module).iter().filter(|path| path[0] != module[0] && floor(&path[0]).is_some()) {
            let deep = path.len() > 3 && is_module(&path[1]) && is_module(&path[2]);
            assert!(!deep, "`{}` reaches into a wing: {}", module.join("::"), path.join("::"));
        }
    }
}

#[test]
fn no_more_than_two_files_use_one_another() {
    let house = House::read();
    let (uses, circles) = (house.uses(), house.circles());
    assert!(circles.len() <= MOST_CIRCLES, "{circles:?}");
    let mut large = String::new();
    for circle in circles.iter().filter(|circle| circle.len() > LARGEST_CIRCLE) {
        large += "\na circle:\n";
        for module in circle {
            for used in uses[module.as_slice()].iter().filter(|used| circle.contains(used)) {
                large += &format!("  {} -> {}\n", module.join("::"), used.join("::"));
            }
        }
    }
    assert!(large.is_empty(), "{large}");
}

#[test]
fn the_library_knows_nothing_of_the_command_line() {
    let lib = fs::read_to_string(source().join("lib.rs")).unwrap();
    assert!(!lib.contains("mod cli"));
    assert!(fs::read_to_string(source().join("main.rs")).unwrap().contains("mod cli;"));
}

#[test]
fn files_stay_small_and_say_what_they_are_for() {
    const LONGEST: usize = 355;
    for file in rust_files(&source()) {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!") || text.starts_with("#!["), "{} does not say what it is for", file.display());
        let lines = house::code_of(&text).lines().filter(|line| !line.trim().is_empty()).count();
        assert!(lines <= LONGEST, "{} has {lines} lines of code: is there a second idea in it?", file.display());
    }
}
