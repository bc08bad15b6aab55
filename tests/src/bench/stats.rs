//! Latencies, medians and spreads.

use std::time::Duration;

/// Latencies of single calls, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    /// Room for `calls`, so that recording one does not allocate in the timed stretch.
    #[must_use]
    pub fn with_capacity(calls: usize) -> Self {
        Self(Vec::with_capacity(calls))
    }

    /// Records one call.
    pub fn push(&mut self, latency: Duration) {
        self.0.push(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all calls of another stretch.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// The latency in microseconds that `part` of the calls did not exceed (nearest rank); 0 without calls.
    #[must_use]
    pub fn quantile_us(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.max(1) - 1).map_or(0.0, |nanos| *nanos as f64 / 1000.0)
    }

    /// The slowest call in microseconds; 0 without calls.
    #[must_use]
    pub fn worst_us(&self) -> f64 {
        self.quantile_us(1.0)
    }
}

/// The middle of `values` and its quartiles. On a shared machine the middle of per-round ratios is what can be
/// compared; the quartiles say how far to trust it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// A quarter of the values lie at or below it.
    pub low: f64,
    /// The median.
    pub middle: f64,
    /// A quarter of the values lie at or above it.
    pub high: f64,
}

impl Spread {
    /// The spread of `values`; `None` when there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        // Linear between the two neighbours, so that an even number of rounds is not read as its upper half.
        let at = |part: f64| {
            let position = part * last as f64;
            let below = sorted[position.floor() as usize];
            let above = sorted[position.ceil() as usize];
            below + (above - below) * position.fract()
        };
        Some(Self {
            low: at(0.25),
            middle: at(0.5),
            high: at(0.75),
        })
    }

    /// The spread of `values[round] / base[round]`.
    #[must_use]
    pub fn of_ratios(values: &[f64], base: &[f64]) -> Option<Self> {
        Self::of(values.iter().zip(base).map(|(value, base)| value / base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile_us(0.5), 0.0);
        for micros in (1..=100).rev() {
            latencies.push(Duration::from_micros(micros));
        }
        assert_eq!(latencies.quantile_us(0.5), 50.0);
        assert_eq!(latencies.quantile_us(0.99), 99.0);
        assert_eq!(latencies.worst_us(), 100.0);
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let spread = Spread::of_ratios(&[9.0, 1.0, 40.0], &[10.0, 2.0, 50.0]).unwrap();
        assert_eq!(spread.middle, 0.8);
        assert_eq!(Spread::of([1.0, 3.0]).unwrap().middle, 2.0);
        assert_eq!(Spread::of([]), None);
    }
}
