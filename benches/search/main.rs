//! How many probes each strategy needs: replays of recorded tables, many seeds, and how far the best found is below the
//! table's best.
//!
//! `cargo bench --bench search -- --tables FOLDER` reads all CSV tables of a folder with their `manifest.json`, which
//! says of each whether more or less is better. Without a folder the tables of the tests are taken.
#![expect(clippy::unwrap_used, reason = "a program of ours alone")]

mod replay;
mod report;

use std::path::PathBuf;

/// What the command line asks for.
struct Asked {
    tables: PathBuf,
    strategies: Vec<String>,
    only: Vec<String>,
    seeds: u64,
    first_seed: u64,
    probes: usize,
    json: Option<PathBuf>,
    markdown: Option<PathBuf>,
}

fn main() {
    let asked = asked();
    let tables = replay::tables(&asked.tables, &asked.only);
    let mut results = Vec::new();
    for strategy in &asked.strategies {
        for table in &tables {
            let result =
                replay::replayed(table, strategy, asked.first_seed..asked.first_seed + asked.seeds, asked.probes);
            eprintln!("{}", report::line(&result));
            results.push(result);
        }
    }
    println!("{}", report::markdown(&results));
    if let Some(path) = &asked.json {
        std::fs::write(path, report::json(&results)).unwrap();
    }
    if let Some(path) = &asked.markdown {
        std::fs::write(path, report::markdown(&results)).unwrap();
    }
}

fn asked() -> Asked {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let value = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let list = |name: &str| value(name).map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
    let number = |name: &str, default: u64| value(name).map_or(default, |text| text.parse().unwrap());
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tables");
    Asked {
        tables: value("--tables").map_or(own, PathBuf::from),
        strategies: list("--strategies").unwrap_or_else(|| vec!["auto".to_owned()]),
        only: list("--only").unwrap_or_default(),
        seeds: number("--seeds", 50),
        first_seed: number("--first-seed", 0),
        probes: usize::try_from(number("--probes", 100)).unwrap(),
        json: value("--json").map(PathBuf::from),
        markdown: value("--markdown").map(PathBuf::from),
    }
}
