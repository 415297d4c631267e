//! Which of several rows of scores no other is better than, and which of them is named first.

/// Whether one row of scores is at least as good in all of them, and better in one.
pub fn dominates(a: &[f64], b: &[f64]) -> bool {
    let pairs = || a.iter().zip(b);
    pairs().all(|(a, b)| a >= b) && pairs().any(|(a, b)| a > b)
}

/// The places of the rows that no other dominates, in their order; of equal rows the first.
pub fn non_dominated(rows: &[Vec<f64>]) -> Vec<usize> {
    // From the best in the first score down, only what is kept can dominate what follows.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let by_scores = |a: &usize, b: &usize| {
        let pairs = rows[*a].iter().zip(&rows[*b]);
        let first = pairs.map(|(a, b)| b.total_cmp(a)).find(|order| order.is_ne());
        first.unwrap_or_else(|| a.cmp(b))
    };
    order.sort_by(by_scores);
    let mut kept: Vec<usize> = Vec::new();
    for row in order {
        if !kept.iter().any(|&other| rows[other] == rows[row] || dominates(&rows[other], &rows[row])) {
            kept.push(row);
        }
    }
    kept.sort_unstable();
    kept
}

/// The rows in the order of their distance to the best of each score, with each from 0 (the best) to 1 (the worst) over
/// all rows, by logarithms where all have the same sign; of equally near ones the better in the first score first.
///
/// The first is the compromise of Yu ("A class of solutions for group decision problems", Management Science 19, 1973) with
/// Euclidean distance: on a front that bends it is the knee.
pub fn by_compromise(rows: &[Vec<f64>]) -> Vec<usize> {
    let mut distances = vec![0.0; rows.len()];
    for at in 0..rows.first().map_or(0, Vec::len) {
        let column: Vec<f64> = rows.iter().map(|row| row[at]).collect();
        let places: Vec<f64> = if column.iter().all(|score| *score > 0.0) {
            column.into_iter().map(libm::log).collect()
        } else if column.iter().all(|score| *score < 0.0) {
            column.into_iter().map(|score| -libm::log(-score)).collect()
        } else {
            column
        };
        let best = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let range = best - places.iter().copied().fold(f64::INFINITY, f64::min);
        for (distance, place) in distances.iter_mut().zip(places).filter(|_| range > 0.0) {
            let share = (best - place) / range;
            *distance += share * share;
        }
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| distances[a].total_cmp(&distances[b]).then(rows[b][0].total_cmp(&rows[a][0])));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(rows: &[[f64; 2]]) -> Vec<Vec<f64>> {
        rows.iter().map(|row| row.to_vec()).collect()
    }

    #[test]
    fn equals_stay_once_and_what_is_worse_in_all_goes() {
        assert_eq!(non_dominated(&rows(&[[1.0, 3.0], [2.0, 2.0], [2.0, 2.0], [1.0, 2.0], [3.0, 1.0]])), [0, 1, 4]);
        assert_eq!(non_dominated(&[]), Vec::<usize>::new());
    }

    #[test]
    fn the_compromise_is_where_the_front_bends() {
        let nearest = |table: &[[f64; 2]]| by_compromise(&rows(table)).first().copied();
        assert_eq!(nearest(&[[0.0, 1.0], [0.8, 0.9], [1.0, 0.0]]), Some(1));
        assert_eq!(nearest(&[[0.0, 1.0], [1.0, 0.0]]), Some(1), "of two ends the better in the first");
        assert_eq!(nearest(&[[5.0, 5.0]]), Some(0));
        assert_eq!(nearest(&[]), None);
        // By logarithms 90 joules are next to 100, not next to 1.
        assert_eq!(nearest(&[[100.0, -100.0], [99.0, -90.0], [60.0, -4.0], [50.0, -1.0]]), Some(2));
    }

    proptest! {
        #[test]
        fn what_is_left_out_is_dominated_and_what_stays_is_not(
            rows in prop::collection::vec(prop::collection::vec(0_u8..8, 3), 0..40),
        ) {
            let rows: Vec<Vec<f64>> = rows.iter().map(|row| row.iter().map(|n| f64::from(*n)).collect()).collect();
            let kept = non_dominated(&rows);
            prop_assert!(rows.is_empty() || !kept.is_empty());
            for (at, row) in rows.iter().enumerate() {
                let is_beaten = kept.iter().any(|&other| other != at && (dominates(&rows[other], row) || rows[other] == *row));
                prop_assert_eq!(is_beaten, !kept.contains(&at));
            }
        }
    }
}
