//! Axes of a pivot: what its rows, columns and filters are made of, a dimension or a taxonomy.

use std::fmt;
use std::sync::Arc;

use super::class::Class;
use super::dimension::{DependsOn, Dimension};
use super::taxonomy::Taxonomy;

/// A dimension or a taxonomy.
#[derive(Clone, Debug)]
pub enum Axis {
    /// A property of instructions that the tool knows.
    Dimension(Dimension),
    /// Named groups of instructions.
    Taxonomy(Arc<Taxonomy>),
}

/// The name of an axis that does not exist.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown dimension `{name}`; expected one of {}", known.join(", "))]
pub struct UnknownAxis {
    /// What was asked for.
    pub name: String,
    /// The names that exist.
    pub known: Vec<String>,
}

/// The value of an instruction that belongs to no group of a taxonomy.
pub const NO_GROUP: &str = "(none)";

impl Axis {
    /// The axis of this name: a dimension, or one of the taxonomies.
    pub fn named(name: &str, taxonomies: &[Arc<Taxonomy>]) -> Result<Self, UnknownAxis> {
        if let Some(dimension) = Dimension::named(name) {
            return Ok(Self::Dimension(dimension));
        }
        let taxonomy = taxonomies.iter().find(|taxonomy| taxonomy.name == name);
        taxonomy.cloned().map(Self::Taxonomy).ok_or_else(|| {
            let dimensions = Dimension::ALL.iter().map(|dimension| dimension.name());
            let taxonomies = taxonomies.iter().map(|taxonomy| taxonomy.name.as_str());
            UnknownAxis {
                name: name.to_owned(),
                known: dimensions.chain(taxonomies).map(str::to_owned).collect(),
            }
        })
    }

    /// Stable name.
    pub fn name(&self) -> &str {
        match self {
            Self::Dimension(dimension) => dimension.name(),
            Self::Taxonomy(taxonomy) => &taxonomy.name,
        }
    }

    /// The dimension, unless it is a taxonomy.
    pub(crate) const fn dimension(&self) -> Option<Dimension> {
        match self {
            Self::Dimension(dimension) => Some(*dimension),
            Self::Taxonomy(_) => None,
        }
    }

    /// Whether it is this dimension.
    pub fn is(&self, dimension: Dimension) -> bool {
        self.dimension() == Some(dimension)
    }

    /// What its values depend on.
    pub(crate) fn depends_on(&self) -> DependsOn {
        self.dimension().map_or(DependsOn::Form, Dimension::depends_on)
    }
}

impl Class {
    /// The values of an axis that depends on the form: one, or of a taxonomy one for each group that it is in.
    pub fn values(&self, axis: &Axis) -> Vec<String> {
        match axis {
            Axis::Dimension(dimension) => vec![self.value(*dimension).unwrap_or_default()],
            Axis::Taxonomy(taxonomy) => {
                let groups = taxonomy.groups_of(self);
                if groups.is_empty() {
                    vec![NO_GROUP.to_owned()]
                } else {
                    groups
                }
            }
        }
    }
}

impl PartialEq for Axis {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl From<Dimension> for Axis {
    fn from(dimension: Dimension) -> Self {
        Self::Dimension(dimension)
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_dimensions_and_taxonomies() {
        let taxonomies = Taxonomy::built_in();
        for name in ["mnemonic", "long-latency", "synchronization"] {
            assert_eq!(Axis::named(name, &taxonomies).unwrap().name(), name);
        }
        let unknown = Axis::named("colour", &taxonomies).unwrap_err().to_string();
        assert!(
            unknown.contains("mnemonic") && unknown.ends_with("long-latency, synchronization"),
            "{unknown}"
        );
    }
}
