//! k-means and the Bayesian information criterion, as SimPoint 3.0 uses them.
//!
//! The method prescribes how k-means begins, how often it tries and how its result is scored, so it is written out here.

/// Dimensions of the projection: "we found 15 dimensions is sufficient" (Sherwood, Perelman, Hamerly, Calder: Automatically
/// Characterizing Large Scale Program Behavior, ASPLOS 2002, section 4.2); SimPoint's `-dim 15`.
pub(crate) const DIMENSIONS: usize = 15;

/// A projected vector.
pub(crate) type Point = [f64; DIMENSIONS];

/// Points in clusters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Clusters {
    /// Centre of each cluster.
    pub(crate) centres: Vec<Point>,
    /// Cluster of each point.
    pub labels: Vec<u32>,
    /// Sum of the squared distances of points from their centres.
    pub spread: f64,
}

/// Beginnings that are tried for each k: SimPoint's `-numInitSeeds 5`.
const BEGINNINGS: u64 = 5;
/// Rounds of one k-means at the most: SimPoint's `-iters 100`.
const ROUNDS: usize = 100;
/// The fraction of the range from the worst to the best score that is good enough: SimPoint's `-bicThreshold 0.9`.
const GOOD: f64 = 0.9;
/// Variance of each dimension that is treated as 0: vectors whose distance is below a thousandth of their length are
/// equal, as sampling noise is ten times that.
const NO_VARIANCE: f64 = 1e-6;

/// The clusters of the smallest k, up to `most`, whose score is good enough, of points each dimension of which has the variance
/// `chance` by chance; `None` without points.
pub(crate) fn best(points: &[Point], most: usize, chance: f64) -> Option<Clusters> {
    let most = most.clamp(1, points.len().max(1));
    let tried = (1..=most).filter_map(|k| {
        let beginnings = (0..BEGINNINGS).map(|seed| k_means(points, k, seed));
        let clusters = beginnings.min_by(|a, b| a.spread.total_cmp(&b.spread))?;
        let score = score(points.len(), &clusters, chance);
        Some((clusters, score))
    });
    let tried: Vec<(Clusters, f64)> = tried.collect();
    let scores = || tried.iter().map(|(_, score)| *score);
    let (worst, best) = (
        scores().fold(f64::INFINITY, f64::min),
        scores().fold(f64::NEG_INFINITY, f64::max),
    );
    let good = worst + GOOD * (best - worst);
    let found = tried.iter().find(|(_, score)| good <= *score);
    found
        .filter(|_| !points.is_empty())
        .map(|(clusters, _)| clusters.clone())
}

/// The Bayesian information criterion of clusters as spherical Gaussians of one variance (Pelleg, Moore: X-means, ICML 2000,
/// section 3.2), which is at least what chance leaves.
fn score(n: usize, clusters: &Clusters, chance: f64) -> f64 {
    let (k, n, dimensions) = (clusters.centres.len() as f64, n as f64, DIMENSIONS as f64);
    let variance = (clusters.spread / (dimensions * (n - k).max(1.0))).max(chance.max(NO_VARIANCE));
    let sizes = sizes(clusters);
    let by_cluster: f64 = sizes
        .iter()
        .filter(|size| 0.0 < **size)
        .map(|size| size * (size / n).ln())
        .sum();
    let likelihood = by_cluster
        - n * dimensions / 2.0 * (2.0 * std::f64::consts::PI * variance).ln()
        - clusters.spread / (2.0 * variance);
    let parameters = (k - 1.0) + dimensions * k + 1.0;
    likelihood - parameters / 2.0 * n.ln()
}

fn sizes(clusters: &Clusters) -> Vec<f64> {
    let mut sizes = vec![0.0; clusters.centres.len()];
    for label in &clusters.labels {
        if let Some(size) = sizes.get_mut(*label as usize) {
            *size += 1.0;
        }
    }
    sizes
}

/// Lloyd's k-means from a beginning by furthest points.
fn k_means(points: &[Point], k: usize, seed: u64) -> Clusters {
    let mut clusters = Clusters {
        centres: beginning(points, k, seed),
        labels: vec![u32::MAX; points.len()],
        spread: 0.0,
    };
    for _ in 0..ROUNDS {
        if !assign(points, &mut clusters) {
            break;
        }
        move_centres(points, &mut clusters);
    }
    clusters
}

/// Centres to begin with: one point by the seed, then each time the point that is furthest from all centres (SimPoint's
/// `-initkm kpp` takes one by chance, in proportion; the furthest makes equal runs equal).
fn beginning(points: &[Point], k: usize, seed: u64) -> Vec<Point> {
    let first = usize::try_from(seed.wrapping_mul(0x9e37_79b9)).unwrap_or(0) % points.len().max(1);
    let mut centres: Vec<Point> = points.get(first).copied().into_iter().collect();
    let mut near: Vec<f64> = vec![f64::INFINITY; points.len()];
    while centres.len() < k {
        let Some(newest) = centres.last().copied() else {
            break;
        };
        for (near, point) in near.iter_mut().zip(points) {
            *near = near.min(distance(point, &newest));
        }
        let furthest = near.iter().zip(points).max_by(|a, b| a.0.total_cmp(b.0));
        centres.extend(furthest.map(|(_, point)| *point));
    }
    centres
}

/// Puts each point to the nearest centre, and says whether any changed.
fn assign(points: &[Point], clusters: &mut Clusters) -> bool {
    let mut changed = false;
    clusters.spread = 0.0;
    for (point, label) in points.iter().zip(&mut clusters.labels) {
        let near = (0..)
            .zip(&clusters.centres)
            .map(|(n, centre)| (n, distance(point, centre)));
        if let Some((n, distance)) = near.min_by(|a, b| a.1.total_cmp(&b.1)) {
            changed |= *label != n;
            *label = n;
            clusters.spread += distance;
        }
    }
    changed
}

fn move_centres(points: &[Point], clusters: &mut Clusters) {
    let sizes = sizes(clusters);
    let mut sums = vec![Point::default(); clusters.centres.len()];
    for (point, label) in points.iter().zip(&clusters.labels) {
        if let Some(sum) = sums.get_mut(*label as usize) {
            for (sum, x) in sum.iter_mut().zip(point) {
                *sum += x;
            }
        }
    }
    for ((centre, sum), size) in clusters.centres.iter_mut().zip(sums).zip(sizes) {
        if 0.0 < size {
            *centre = sum.map(|x| x / size);
        }
    }
}

/// The square of the distance of two points.
pub(super) fn distance(a: &Point, b: &Point) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64) -> Point {
        let mut point = Point::default();
        (point[0], point[1]) = (x, y);
        point
    }

    #[test]
    fn equal_points_are_one_cluster() {
        let points = vec![point(0.3, 0.1); 20];
        let found = best(&points, 5, 0.0).unwrap();
        assert!(found.centres.len() == 1 && found.spread < 1e-20);
        assert!(best(&[], 5, 0.0).is_none());
    }

    /// Even numbers from 0 to this.
    fn by_chance(to: f64) -> impl FnMut() -> f64 {
        let mut seed = 1_u64;
        move || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 40) as f64 / (1_u64 << 24) as f64 * to
        }
    }

    /// A cloud of few points has some that are near to each other; without a word on chance, BIC may take them for clusters.
    #[test]
    fn chance_makes_no_clusters() {
        let mut noise = by_chance(0.1);
        let points: Vec<Point> = (0..18).map(|_| Point::default().map(|_| noise())).collect();
        // The variance of an even distribution.
        let chance = 0.1 * 0.1 / 12.0;
        assert_eq!(best(&points, 6, chance).unwrap().centres.len(), 1);
        // Vectors at a larger distance than sampling noise are still distinguished.
        let apart = points.iter().enumerate().map(|(n, point)| {
            let mut point = *point;
            point[3] += if n < 9 { 0.0 } else { 0.5 };
            point
        });
        assert_eq!(
            best(&apart.collect::<Vec<_>>(), 6, chance).unwrap().centres.len(),
            2
        );
    }

    #[test]
    fn two_clouds_are_two_clusters() {
        let mut noise = by_chance(0.1);
        let mut cloud = |n: usize| {
            let mut point = Point::default().map(|_| noise());
            point[0] += if n.is_multiple_of(3) { 0.5 } else { -0.5 };
            point
        };
        let points: Vec<Point> = (0..60).map(&mut cloud).collect();
        let found = best(&points, 8, 0.0).unwrap();
        let size = sizes(&found);
        assert!(size.len() == 2 && size.contains(&40.0), "{size:?}");
        assert_eq!(found.labels[0], found.labels[3]);
        assert_ne!(found.labels[0], found.labels[1]);
    }
}
