//! Measures how long rules take: to the first config, to the count, to a thousand random configs.
//!
//! `cargo bench --no-default-features --bench space` prints a table. `benches/space_peer.py` asks Kernel Tuner's solver about the
//! same rules.

use std::error::Error;
use std::time::{Duration, Instant};

use gputune::model::{Expression, Parameter, Space};

const ROUNDS: usize = 5;

/// A space by its name: parameters and rules.
type Case = (&'static str, fn() -> Vec<Parameter>, fn() -> Vec<String>);

const CASES: &[Case] = &[
    ("parallel: 7.4e6, two needles", parallel, || rules(&["dp * tp * pp == 64", "batch_size == 1024 and zero == 3"])),
    ("digits: 1e12, a sum of twelve", || ranges("d", 12, 0, 9), || vec![format!("{} >= 80", sum("d", 12))]),
    ("digits: 1e12, a sum that none has", || ranges("d", 12, 0, 9), || vec![format!("{} >= 109", sum("d", 12))]),
    ("product: 1e20, batch == micro * accum * dp", product, || rules(&["batch == micro * accum * dp"])),
    ("divisor: 1e10, a % b == 0", || ranges("x", 2, 1, 100_000), || rules(&["x0 % x1 == 0"])),
    ("plane: 1e15, a sum of three", || ranges("x", 3, 1, 100_000), || rules(&["x0 + x1 + x2 == 150000"])),
    ("queens: 16777216, all different", || ranges("q", 8, 1, 8), queens),
    ("convolution: 1.1e7, products and bounds", convolution, || {
        rules(&[
            "bx * by >= 32 and bx * by <= 1024",
            "tx * ty <= 32",
            "(bx * tx) % 16 == 0",
            "shared * bx * ty <= 4096",
        ])
    }),
];

fn rules(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn ranges(name: &str, count: usize, first: i64, last: i64) -> Vec<Parameter> {
    (0..count).map(|at| Parameter::range(format!("{name}{at}"), first, last, 1)).collect()
}

fn sum(name: &str, count: usize) -> String {
    (0..count).map(|at| format!("{name}{at}")).collect::<Vec<_>>().join(" + ")
}

fn parallel() -> Vec<Parameter> {
    vec![
        Parameter::powers_of_two("batch_size", 1, 1024),
        Parameter::powers_of_two("micro", 1, 1024),
        Parameter::powers_of_two("dp", 1, 64),
        Parameter::values("tp", [1, 2, 4, 8]),
        Parameter::values("pp", [1, 2, 4, 8]),
        Parameter::range("workers", 0, 16, 1),
        Parameter::range("prefetch", 1, 8, 1),
        Parameter::range("zero", 0, 3, 1),
    ]
}

fn product() -> Vec<Parameter> {
    let mut parameters: Vec<Parameter> =
        ["batch", "micro", "accum"].map(|name| Parameter::range(name, 1, 100_000, 1)).into();
    parameters.push(Parameter::range("dp", 1, 100_000, 1));
    parameters
}

fn queens() -> Vec<String> {
    let pairs = (0..8_i64).flat_map(|a| (0..a).map(move |b| (a, b)));
    pairs.map(|(a, b)| format!("q{a} != q{b} and abs(q{a} - q{b}) != {}", a - b)).collect()
}

fn convolution() -> Vec<Parameter> {
    vec![
        Parameter::values("bx", (1..=32).map(|at| at * 4)),
        Parameter::values("by", [1, 2, 4, 8, 16, 32]),
        Parameter::range("tx", 1, 16, 1),
        Parameter::range("ty", 1, 16, 1),
        Parameter::range("shared", 0, 1, 1),
        Parameter::range("unroll", 1, 16, 1),
        Parameter::range("pad", 0, 6, 1),
    ]
}

fn space(case: &Case) -> Result<Space, Box<dyn Error>> {
    let builder = (case.1)().into_iter().fold(Space::builder(), gputune::model::SpaceBuilder::parameter);
    let rules: Vec<Expression> = (case.2)().into_iter().map(Expression::parse).collect::<Result<_, _>>()?;
    Ok(rules.into_iter().fold(builder, gputune::model::SpaceBuilder::rule).build()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("medians of {ROUNDS} rounds; milliseconds\n");
    println!("| space | configs | to the first or to none | count | 1,000 draws |");
    println!("|---|--:|--:|--:|--:|");
    for case in CASES {
        let (mut firsts, mut counts, mut draws) = (Vec::new(), Vec::new(), Vec::new());
        let mut shown = String::new();
        for _ in 0..ROUNDS {
            let fresh = space(case)?;
            firsts.push(timed(|| drop(fresh.first())));
            let fresh = space(case)?;
            counts.push(timed(|| shown = fresh.count().to_string()));
            draws.push(timed(|| drop(fresh.draws(7, 1000))));
        }
        println!("| {} | {shown} | {} | {} | {} |", case.0, median(firsts), median(counts), median(draws));
    }
    Ok(())
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    format!("{:.2}", times[times.len() / 2].as_secs_f64() * 1e3)
}
