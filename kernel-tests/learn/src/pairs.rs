//! Training pairs: the features of a block, and the method that was nearer to its exact count, with a weight.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Read;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use csv::StringRecord;

/// How the executions of a block are estimated.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Method {
    Ebs,
    Lbr,
}

/// The weight of a pair.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Weighing {
    /// Executions of the block, as in the paper (section IV.B), as part of those of its recording.
    Executions,
    /// What the choice is worth: the instructions by which the nearer method is less off, as part of those of its recording.
    /// The sum over wrong choices is what they add to the mean error over blocks.
    Worth,
}

/// A block of a recording, or all of its blocks with these features to which this method was nearer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    /// Number of its workload.
    pub(crate) workload: usize,
    pub(crate) features: Vec<f64>,
    pub(crate) blocks: usize,
    /// The method that was nearer.
    pub(crate) nearer: Method,
    pub(crate) weight: f64,
    /// How far EBS and LBR are off, in instructions, as parts of all instructions of the recording.
    pub(crate) errors: [f64; 2],
}

/// The title before those of the features.
const LAST_AMOUNT: &str = "hybrid";

/// The pairs of recordings.
#[derive(Debug)]
pub(crate) struct Pairs {
    /// The names of the features.
    pub(crate) features: Vec<String>,
    weighing: Weighing,
    pub(crate) pairs: Vec<Pair>,
}

/// Numbers of columns.
struct Columns {
    address: usize,
    reference: usize,
    ebs: usize,
    lbr: usize,
    length: usize,
    features: Vec<usize>,
}

impl Pair {
    fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.weight += other.weight;
        for (error, other) in self.errors.iter_mut().zip(other.errors) {
            *error += other;
        }
    }

    /// How far a method is off.
    pub(crate) const fn error(&self, method: Method) -> f64 {
        let [ebs, lbr] = self.errors;
        match method {
            Method::Ebs => ebs,
            Method::Lbr => lbr,
        }
    }
}

impl Pairs {
    /// No pairs yet, of these features.
    pub(crate) fn of(features: Vec<String>, weighing: Weighing) -> Self {
        Self {
            features,
            weighing,
            pairs: Vec::new(),
        }
    }

    /// Adds the blocks that `hbbp-sys eval --blocks` wrote of a recording of a workload. Blocks of which both methods say the
    /// same teach nothing, and are left out.
    ///
    /// # Errors
    /// When these are not such lines, or lack a feature.
    pub(crate) fn add(&mut self, text: impl Read, workload: usize) -> Result<()> {
        let mut lines = csv::Reader::from_reader(text);
        let titles = lines.headers().context("no titles")?.clone();
        let position = |name: &str| titles.iter().position(|title| title == name);
        let column = |name: &str| position(name).with_context(|| format!("no column `{name}`"));
        let first = column(LAST_AMOUNT)? + 1;
        let feature = |name: &String| {
            position(name).filter(|at| first <= *at).with_context(|| {
                let offered: Vec<&str> = titles.iter().skip(first).collect();
                format!("unknown feature `{name}`; expected one of {}", offered.join(", "))
            })
        };
        let columns = Columns {
            address: column("address")?,
            reference: column("reference")?,
            ebs: column("ebs")?,
            lbr: column("lbr")?,
            length: column("instructions")?,
            features: self.features.iter().map(feature).collect::<Result<_>>()?,
        };
        let (mut pairs, mut all) = (Vec::new(), 0.0);
        for line in lines.records() {
            let line = line.context("a line of blocks")?;
            all += number(&line, columns.reference)?;
            // The remainder has no address.
            if line
                .get(columns.address)
                .is_some_and(|address| !address.is_empty())
            {
                pairs.extend(columns.pair(&line, workload, self.weighing)?);
            }
        }
        let unit = match self.weighing {
            Weighing::Executions => pairs.iter().map(|pair| pair.weight).sum(),
            Weighing::Worth => all,
        };
        let mut distinct: BTreeMap<(Method, Vec<u64>), Pair> = BTreeMap::new();
        for mut pair in pairs {
            pair.weight /= unit;
            pair.errors = pair.errors.map(|error| error / all);
            let features = pair.features.iter().map(|value| value.to_bits()).collect();
            match distinct.entry((pair.nearer, features)) {
                Entry::Vacant(entry) => {
                    entry.insert(pair);
                }
                Entry::Occupied(mut entry) => entry.get_mut().add(&pair),
            }
        }
        self.pairs.extend(distinct.into_values());
        Ok(())
    }
}

impl Columns {
    /// The pair of a block, with weight and errors not yet as parts of its recording; `None` if there is nothing to learn.
    fn pair(&self, line: &StringRecord, workload: usize, weighing: Weighing) -> Result<Option<Pair>> {
        let reference = number(line, self.reference)?;
        let off = |column| Ok::<f64, anyhow::Error>((number(line, column)? - reference).abs());
        let errors = [off(self.ebs)?, off(self.lbr)?];
        let [by_ebs, by_lbr] = errors;
        let weight = match weighing {
            Weighing::Executions => reference / number(line, self.length)?,
            Weighing::Worth => (by_ebs - by_lbr).abs(),
        };
        let has_weight = 0.0 < weight;
        if by_ebs == by_lbr || !has_weight {
            return Ok(None);
        }
        let features = self.features.iter().map(|column| number(line, *column));
        Ok(Some(Pair {
            workload,
            features: features.collect::<Result<_>>()?,
            blocks: 1,
            nearer: if by_ebs < by_lbr { Method::Ebs } else { Method::Lbr },
            weight,
            errors,
        }))
    }
}

fn number(line: &StringRecord, column: usize) -> Result<f64> {
    let text = line.get(column).unwrap_or_default();
    text.parse().with_context(|| format!("`{text}` is not a number"))
}

impl Method {
    /// As rule files name it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ebs => "ebs",
            Self::Lbr => "lbr",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TITLES: &str = "ring,module,function,address,reference,ebs,lbr,hybrid,instructions,biased";

    /// Two blocks of 10 and 2 instructions, one without executions, one for which both methods agree, and the remainder.
    const LINES: &str = "user,a,f,0x1,600,500,580,580,10,0\nuser,a,\"g(a, b)\",0x2,200,190,250,190,2,1\n\
                         user,a,f,0x3,0,50,0,0,5,0\nuser,a,f,0x4,100,90,110,110,5,0\nkernel,,,,100,0,0,0,,\n";

    fn read(text: &str, weighing: Weighing) -> Result<Pairs> {
        let features = ["instructions", "biased"].map(str::to_owned);
        let mut pairs = Pairs::of(features.to_vec(), weighing);
        pairs.add(text.as_bytes(), 7)?;
        Ok(pairs)
    }

    #[test]
    fn blocks_become_pairs_with_weights() {
        let text = format!("{TITLES}\n{LINES}");
        let found = |weighing| read(&text, weighing).unwrap();
        let executions = found(Weighing::Executions);
        let weights = |pairs: &Pairs| -> Vec<(Method, f64)> {
            pairs
                .pairs
                .iter()
                .map(|pair| (pair.nearer, pair.weight))
                .collect()
        };
        // 60 and 100 executions; the block that was never executed has no weight.
        assert_eq!(
            weights(&executions),
            [(Method::Ebs, 100.0 / 160.0), (Method::Lbr, 60.0 / 160.0)]
        );
        let worth = found(Weighing::Worth);
        let expected = [(Method::Ebs, 40.0), (Method::Lbr, 50.0), (Method::Lbr, 80.0)];
        assert_eq!(
            weights(&worth),
            expected.map(|(method, weight)| (method, weight / 1000.0))
        );
        let first = &worth.pairs[2];
        assert_eq!((first.workload, first.features.as_slice()), (7, &[10.0, 0.0][..]));
        // Of 1000 instructions, the remainder included.
        assert_eq!(
            [Method::Ebs, Method::Lbr].map(|method| first.error(method)),
            [0.1, 0.02]
        );
    }

    #[test]
    fn blocks_that_a_tree_cannot_distinguish_are_one_pair() {
        let text = format!("{TITLES}\n{LINES}user,a,f,0x5,1000,900,980,980,10,0\n");
        let found = read(&text, Weighing::Worth).unwrap();
        let of: Vec<_> = found
            .pairs
            .iter()
            .filter(|pair| pair.features[0] == 10.0)
            .collect();
        assert_eq!(of.len(), 1, "{found:?}");
        assert_eq!((of[0].blocks, of[0].weight), (2, 0.08));
        assert_eq!(
            [Method::Ebs, Method::Lbr].map(|method| of[0].error(method)),
            [0.1, 0.02]
        );
    }

    #[test]
    fn what_is_not_a_table_of_blocks_is_refused() {
        let refused = |text: &str| format!("{:#}", read(text, Weighing::Worth).unwrap_err());
        assert!(refused("a,b\n1,2\n").contains("no column `hybrid`"));
        let mut pairs = Pairs::of(vec!["reference".to_owned()], Weighing::Worth);
        let err = pairs.add(format!("{TITLES}\n{LINES}").as_bytes(), 7).unwrap_err();
        assert_eq!(
            err.to_string(),
            "unknown feature `reference`; expected one of instructions, biased"
        );
        let text = format!("{TITLES}\nuser,a,f,0x1,many,5,5,5,10,0\n");
        assert!(refused(&text).contains("`many` is not a number"));
    }
}
