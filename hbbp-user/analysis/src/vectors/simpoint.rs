//! SimPoint's choice: which slices represent the phases of a run, and for how much of it.
//!
//! As SimPoint 3.0 does it (Hamerly, Perelman, Lau, Calder: SimPoint 3.0, Journal of Instruction-Level Parallelism 7,
//! 2005): each vector is divided by its sum and projected at random to 15 dimensions; k-means makes clusters for every
//! k up to the greatest ([`super::clusters`]); the smallest k whose score by the Bayesian information criterion is at
//! least nine tenths of the range from the worst to the best is taken. The slice that is nearest to the centre of a
//! cluster is its simulation point, and its weight is the share of the slices in that cluster.
//!
//! SimPoint takes vectors as exact. Those of samples differ by chance even where a run does the same all the time, and clusters
//! of that are none: the variance of a cluster is taken to be at least what chance leaves ([`Vectors::chance`]).

use std::io::{self, Write};

use super::by_slice::Vectors;
use super::clusters::{Clusters, DIMENSIONS, Point, best};
use super::lines::Ids;

/// The slices that represent a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimPoints {
    /// Cluster of each slice, in the order of time.
    pub labels: Vec<u32>,
    /// By cluster, the number of its slice, from 0, and its share of all.
    pub points: Vec<(u32, f64)>,
}

/// Chooses simulation points of one thread, at most `most`, of vectors as `bb.out` has them: the projection goes by the ids of
/// blocks, so that who reads that file finds the same. The last slice, which is not complete, has no part in it.
pub fn choose(vectors: &Vectors<'_>, ids: &Ids, thread: u32, most: usize) -> SimPoints {
    let whole = vectors.whole_slices(thread);
    let mut points: Vec<Point> = Vec::new();
    vectors.each_of(thread, |slice, vector| {
        if slice < whole && !vector.is_empty() {
            let with_ids = vector.iter().map(|(block, value)| (ids.id(*block), *value));
            points.push(projected(&with_ids.collect::<Vec<_>>()));
        }
    });
    of_points(&points, most, projected_variance(vectors.chance(thread)))
}

/// Variance of each dimension of projected vectors, by that of all blocks together: the elements of the projection matrix,
/// even between -1 and 1, have the variance 1/3.
pub fn projected_variance(variance: f64) -> f64 {
    variance / 3.0
}

/// Chooses among projected vectors, each dimension of which has this variance by chance.
pub fn of_points(points: &[Point], most: usize, chance: f64) -> SimPoints {
    let Some(clusters) = best(points, most, chance) else {
        return SimPoints::default();
    };
    let nearest = |cluster: u32| nearest(points, &clusters, cluster);
    SimPoints {
        points: (0..)
            .zip(&clusters.centres)
            .map(|(cluster, _)| nearest(cluster))
            .collect(),
        labels: clusters.labels,
    }
}

/// The slice nearest to the centre of a cluster, and the share of the slices in that.
fn nearest(points: &[Point], clusters: &Clusters, cluster: u32) -> (u32, f64) {
    let centre = clusters
        .centres
        .get(cluster as usize)
        .copied()
        .unwrap_or_default();
    let members = (0..)
        .zip(points)
        .zip(&clusters.labels)
        .filter(|(_, label)| **label == cluster);
    let members: Vec<(u32, f64)> = members
        .map(|((slice, point), _)| (slice, super::clusters::distance(point, &centre)))
        .collect();
    let first = members.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let share = members.len() as f64 / points.len().max(1) as f64;
    (first.map_or(0, |(slice, _)| *slice), share)
}

/// A vector divided by its sum, projected at random.
pub fn projected(vector: &[(u32, f64)]) -> Point {
    let sum: f64 = vector.iter().map(|(_, value)| value).sum();
    let mut point = Point::default();
    for (block, value) in vector {
        for (dimension, coordinate) in (0..).zip(&mut point) {
            *coordinate += value / sum.max(f64::MIN_POSITIVE) * direction(*block, dimension);
        }
    }
    point
}

/// An element of the projection matrix: even between -1 and 1, by the finalizer of SplitMix64 (Steele, Lea, Flood: Fast
/// splittable pseudorandom number generators, OOPSLA 2014), so that a run always has the same.
fn direction(block: u32, dimension: u64) -> f64 {
    let mut z = (u64::from(block) * DIMENSIONS as u64 + dimension + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let z = z ^ z >> 31;
    (z >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// The file of `-saveSimpoints`: slice and cluster.
pub fn write_points(points: &SimPoints, out: &mut dyn Write) -> io::Result<()> {
    for (cluster, (slice, _)) in points.points.iter().enumerate() {
        writeln!(out, "{slice} {cluster}")?;
    }
    Ok(())
}

/// The file of `-saveSimpointWeights`: share and cluster.
pub fn write_weights(points: &SimPoints, out: &mut dyn Write) -> io::Result<()> {
    for (cluster, (_, weight)) in points.points.iter().enumerate() {
        writeln!(out, "{weight:.6} {cluster}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_phases_are_three_points_with_their_weights() {
        let phases = [(0, 50), (1, 30), (2, 20)];
        let slice = |phase: u32, n: u32| {
            // A tenth of each slice is chance.
            let noise = |block: u32| 10.0 * direction(1_000 * n + block, 3);
            (0..10)
                .map(|block| (phase * 10 + block, 100.0 + noise(block)))
                .collect::<Vec<_>>()
        };
        let points: Vec<Point> = phases
            .iter()
            .flat_map(|(phase, n)| (0..*n).map(move |i| projected(&slice(*phase, i))))
            .collect();
        let chosen = of_points(&points, 10, 0.0);
        let mut weights: Vec<f64> = chosen.points.iter().map(|(_, weight)| *weight).collect();
        weights.sort_by(f64::total_cmp);
        assert_eq!(weights, [0.2, 0.3, 0.5]);
        for (cluster, (slice, _)) in chosen.points.iter().enumerate() {
            assert_eq!(chosen.labels[*slice as usize], cluster as u32);
        }
        assert_eq!(of_points(&[], 10, 0.0), SimPoints::default());
        assert_eq!(of_points(&points[..1], 10, 0.0).points, [(0, 1.0)]);
    }

    #[test]
    fn directions_are_even_between_minus_one_and_one() {
        let all: Vec<f64> = (0..1000)
            .flat_map(|block| (0..15).map(move |d| direction(block, d)))
            .collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!(
            mean.abs() < 0.02 && all.iter().all(|it| it.abs() <= 1.0),
            "{mean}"
        );
    }
}
