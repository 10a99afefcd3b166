//! The names of formats and tables on the command line.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::report::top::Tab;
use crate::report::{DiffFormat, Format, TextOrJson};

macro_rules! names {
    ($format:ident: $($variant:ident $name:literal),*) => {
        impl ValueEnum for $format {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self::$variant),*]
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                Some(PossibleValue::new(match self { $(Self::$variant => $name),* }))
            }
        }
    };
}

names!(Format: Text "text", Json "json", Csv "csv", Html "html");
names!(DiffFormat: Text "text", Json "json", Csv "csv");
names!(TextOrJson: Text "text", Json "json");
names!(Tab: Functions "functions", Modules "modules", Processes "processes", Instructions "instructions",
       Categories "categories", Extensions "extensions");
