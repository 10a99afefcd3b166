//! What is asked of a mix: rows, columns, filters, figures, order. Every table of a report answers one query.

use super::axis::Axis;
use super::dimension::Dimension;
use super::filter::Filter;

/// A question to a mix; its answer is a [`super::Mix`].
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Axes of the rows.
    pub rows: Vec<Axis>,
    /// Axes of the columns; without any there is only the total.
    pub columns: Vec<Axis>,
    /// Conditions, all of which an instruction passes to be in the table.
    pub filters: Vec<Filter>,
    /// Figures of each cell.
    pub values: Vec<Value>,
    /// Order of the rows.
    pub sort: Sort,
}

macro_rules! values {
    ($($variant:ident, $name:literal, $sentence:literal;)*) => {
        /// A figure of a cell.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Value {
            $(#[doc = $sentence] $variant,)*
        }

        impl Value {
            /// All of them, in the order of the help text.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Stable name: what `--values` takes.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

values! {
    Executions, "executions", "Estimated executions or samples, the unit of the mix, with the standard error.";
    Share, "share", "Share of everything in the column, what filters exclude included.";
    Samples, "samples", "Samples or streams that the figure rests on: spread evenly over the instructions of their blocks, or of time where they lie.";
    Bytes, "bytes", "Bytes of distinct instructions that ran.";
    Blocks, "blocks", "Distinct basic blocks that ran.";
    Rate, "rate", "Amount per second of the run.";
    Time, "time", "Cycles that passed at the instructions, or ns of a clock.";
    TimeShare, "time-share", "Share of all time, what filters exclude included.";
    Cpi, "cpi", "Cycles per instruction: time over executions, with the standard error; none where these are too few.";
    Ipc, "ipc", "Instructions per cycle: the inverse.";
    Flops, "flops", "Floating-point operations: executions times operations of each instruction.";
}

/// Order of the rows; equal ones are in the order of their keys.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Sort {
    /// By falling amount over all columns.
    #[default]
    Total,
    /// By key, numbers by their value.
    Key,
    /// By a falling figure over all columns.
    Value(Value),
    /// By the falling amount of the column of this name.
    Column(String),
}

/// The name of a figure that does not exist.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown value `{0}`; expected one of {names}", names = names().join(", "))]
pub struct UnknownValue(pub String);

fn names() -> Vec<&'static str> {
    Value::ALL.iter().map(|value| value.name()).collect()
}

impl Query {
    /// The usual table: rows by these axes, a column for each ring.
    pub fn by(rows: impl IntoIterator<Item = impl Into<Axis>>) -> Self {
        Self {
            rows: rows.into_iter().map(Into::into).collect(),
            columns: vec![Dimension::Ring.into()],
            filters: Vec::new(),
            values: vec![Value::Executions, Value::Share],
            sort: Sort::default(),
        }
    }

    /// One row with everything, a column for each ring.
    pub fn whole() -> Self {
        Self::by(Vec::<Axis>::new())
    }

    /// The share of the instructions that pass these filters: one cell.
    pub fn share_of(filters: &[Filter]) -> Self {
        Self {
            columns: Vec::new(),
            filters: filters.to_vec(),
            ..Self::whole()
        }
    }

    /// All axes, in the order of rows, columns and filters.
    pub(crate) fn axes(&self) -> impl Iterator<Item = &Axis> {
        let filters = self.filters.iter().map(|filter| &filter.axis);
        self.rows.iter().chain(&self.columns).chain(filters)
    }

    /// Whether some axis is this dimension.
    pub fn asks(&self, dimension: Dimension) -> bool {
        self.axes().any(|axis| axis.is(dimension))
    }

    /// Whether some axis depends on the process image.
    pub(super) fn asks_process(&self) -> bool {
        self.axes()
            .filter_map(Axis::dimension)
            .any(Dimension::is_of_process)
    }

    /// Whether some figure needs samples of time.
    pub(crate) fn asks_time(&self) -> bool {
        self.values.iter().any(|value| value.is_of_time())
    }

    /// Whether some axis needs debug information.
    pub fn asks_source(&self) -> bool {
        self.axes()
            .filter_map(Axis::dimension)
            .any(Dimension::is_in_source)
    }
}

impl Value {
    /// Whether it needs samples of time.
    pub const fn is_of_time(self) -> bool {
        matches!(self, Self::Time | Self::TimeShare | Self::Cpi | Self::Ipc)
    }
}

impl std::str::FromStr for Value {
    type Err = UnknownValue;

    fn from_str(name: &str) -> Result<Self, UnknownValue> {
        let found = Self::ALL.iter().copied().find(|value| value.name() == name);
        found.ok_or_else(|| UnknownValue(name.to_owned()))
    }
}

impl std::str::FromStr for Sort {
    type Err = std::convert::Infallible;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(match (name, name.parse()) {
            ("total", _) => Self::Total,
            ("key", _) => Self::Key,
            (_, Ok(value)) => Self::Value(value),
            (column, Err(_)) => Self::Column(column.to_owned()),
        })
    }
}
