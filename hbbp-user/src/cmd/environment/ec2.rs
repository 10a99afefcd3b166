//! Machine types of EC2, which its firmware names.

/// Machine types of EC2 with the same offer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ec2Group {
    Metal,
    /// Generations whose sizes all have counters.
    EverySize,
    /// Sizes with a socket of their own.
    Socket,
    /// Smaller ones with a basic set of events.
    Basic,
    /// Smaller ones without counters.
    Below,
}

/// A machine type of EC2, such as `m7i.2xlarge`.
pub(super) struct MachineType<'a> {
    /// Letters before the generation, such as `m`.
    series: &'a str,
    /// Generation and maker of the processor, such as `7i`; of Intel's up to generation 5 the generation alone.
    class: &'a str,
    size: Size<'a>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Size<'a> {
    Metal,
    /// In units of `xlarge`; 0 is less than one.
    Times(u32),
    Other(&'a str),
}

impl<'a> MachineType<'a> {
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        let (family, size) = name.split_once('.')?;
        let digits = family.find(|c: char| c.is_ascii_digit())?;
        let (series, rest) = family.split_at_checked(digits)?;
        let maker = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let has_maker = rest
            .get(maker..)
            .is_some_and(|rest| rest.starts_with(['a', 'g', 'i']));
        let class = rest.get(..maker + usize::from(has_maker))?;
        let size = match size.strip_suffix("xlarge") {
            _ if size.starts_with("metal") => Size::Metal,
            Some("") => Size::Times(1),
            Some(times) => times.parse().map_or(Size::Other(size), Size::Times),
            None if ["nano", "micro", "small", "medium", "large"].contains(&size) => Size::Times(0),
            None => Size::Other(size),
        };
        Some(Self { series, class, size })
    }

    /// The smallest size that has all counters of its socket, where it is known.
    fn socket(&self) -> Option<u32> {
        match (self.series, self.class) {
            ("c", "5") => Some(9),
            (_, "5") => Some(12),
            (_, "6i") => Some(16),
            (_, "6a" | "7a" | "8a") => Some(24),
            _ => None,
        }
    }

    /// The row of the table that covers it.
    pub(super) fn group(&self) -> Option<Ec2Group> {
        match (self.class, self.size, self.socket()) {
            (_, Size::Metal, _) => Some(Ec2Group::Metal),
            ("7i" | "8i", ..) => Some(Ec2Group::EverySize),
            (_, Size::Times(times), Some(socket)) if socket <= times => Some(Ec2Group::Socket),
            ("7a" | "8a", Size::Times(times), Some(socket)) if times < socket => Some(Ec2Group::Basic),
            ("5" | "6i" | "6a", Size::Times(times), Some(socket)) if times < socket => Some(Ec2Group::Below),
            _ => None,
        }
    }
}
