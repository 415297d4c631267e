//! Permutes the numbers below a bound, without a list of them.
//!
//! The permutation is a balanced Feistel network over the next power of two with an even exponent. It is applied until
//! the result lies below the bound ("cycle walking": Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
//! 2002). Eight rounds of a 64-bit mixing function are far more than uniform samples need; the permutation protects no
//! secret.

/// A bijection on `0..len` that a seed chooses.
#[derive(Debug, Clone)]
pub struct Permutation {
    len: u128,
    half_bits: u32,
    keys: [u64; Self::ROUNDS],
}

impl Permutation {
    const ROUNDS: usize = 8;

    /// Makes the bijection on `0..len` for a seed; `len` may be up to 2^126.
    pub fn new(len: u128, seed: u64) -> Self {
        let bits = (u128::BITS - len.saturating_sub(1).leading_zeros()).max(2);
        let mut state = seed;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(GAMMA);
            mix(state)
        });
        Self { len, half_bits: bits.div_ceil(2), keys }
    }

    /// Returns the number at a place of the order; `None` past the end.
    pub fn at(&self, place: u128) -> Option<u128> {
        if place >= self.len {
            return None;
        }
        let mut number = self.encrypt(place);
        while number >= self.len {
            number = self.encrypt(number);
        }
        Some(number)
    }

    /// Permutes the numbers of `2 * half_bits` bits. A half has at most 63 bits, so it fits into 64 bits.
    fn encrypt(&self, number: u128) -> u128 {
        let mask = (1_u128 << self.half_bits) - 1;
        let (mut left, mut right) = ((number >> self.half_bits) as u64, (number & mask) as u64);
        for key in self.keys {
            let next = left ^ (mix(right.wrapping_add(key)) & mask as u64);
            left = right;
            right = next;
        }
        (u128::from(left) << self.half_bits) | u128::from(right)
    }
}

/// The step of SplitMix64 from one state to the next.
pub(in crate::model) const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub(in crate::model) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Returns a word as a number from 0 to below 1.
pub(in crate::model) fn share(word: u64) -> f64 {
    (word >> 11) as f64 / (1_u64 << 53) as f64
}

/// A stream of pseudorandom numbers that its state determines.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    /// Returns a number from 0 to below 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GAMMA);
        share(mix(self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_number_comes_once_and_huge_bounds_work() {
        for len in [1, 2, 3, 5, 16, 17, 100, 1000] {
            let order = Permutation::new(len, 7);
            let seen: BTreeSet<u128> = (0..len).filter_map(|place| order.at(place)).collect();
            assert_eq!(seen.len() as u128, len);
            assert_eq!(order.at(len), None);
        }
        let len = 1_u128 << 126;
        assert!(Permutation::new(len, 1).at(len - 1).unwrap() < len);
    }

    #[test]
    fn the_first_place_is_uniform_over_seeds() {
        let mut counts = [0_u32; 5];
        for seed in 0..5000 {
            let first = Permutation::new(5, seed).at(0).unwrap();
            counts[usize::try_from(first).unwrap()] += 1;
        }
        // The expected count is 1000, with a standard deviation of 28.
        assert!(counts.iter().all(|count| (880..=1120).contains(count)), "{counts:?}");
    }
}
