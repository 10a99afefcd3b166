//! A profile of pprof (google/pprof proto/profile.proto): executions and samples of each instruction, with the labels `ring`,
//! `category`, `extension`, `mnemonic` and `process`. Stacks have one frame: the function of the instruction.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::build_id;
use super::counted::{Counted, Only, is_in};
use super::image::{FOR_ALL, Written};
use super::names::Names;
use hbbp_code::locate::Site;
use hbbp_model::snapshot::{ModuleIdx, ProcessIdx};

/// `perftools.profiles.Profile`; fields that are not used are left out.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
}

/// Type and unit, by index in the string table.
#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// A profile that is being built, with what is already in its tables.
struct Builder<'a> {
    counted: &'a Counted<'a>,
    names: Names<'a>,
    profile: Profile,
    strings: HashMap<String, i64>,
    functions: HashMap<(ModuleIdx, String), u64>,
    locations: HashMap<Site, u64>,
}

/// Writes the executions of a profile, or of one of its modules.
pub fn write_pprof(counted: &Counted<'_>, only: Only<'_>, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written::default();
    let mut builder = Builder::new(counted);
    let mut samples = counted.samples();
    samples.retain(|(site, _), _| is_in(only, site.module));
    let executed: Vec<_> = counted.executed_in(only).collect();
    let amounts: Vec<f64> = executed.iter().map(|executed| executed.executions).collect();
    for (executed, count) in executed.iter().zip(counted.whole(&amounts)) {
        let hits = samples.remove(&(executed.site, executed.process)).unwrap_or(0);
        written.add(FOR_ALL, count);
        written.add("samples", hits);
        let class = builder.names.class(executed);
        let labels: [(&str, &str); 5] = [
            ("ring", &executed.ring.to_string()),
            ("category", &class.category),
            ("extension", &class.extension),
            ("mnemonic", &class.mnemonic),
            ("process", &builder.names.process_image(executed.process)),
        ];
        builder.sample(executed.site, [count, hits], &labels);
    }
    for ((site, process), hits) in samples {
        written.add("samples", hits);
        let process = builder.process(process);
        builder.sample(site, [0, hits], &[("process", &process)]);
    }
    let mut encoder = GzEncoder::new(out, Compression::fast());
    encoder.write_all(&builder.profile.encode_to_vec())?;
    encoder.finish()?;
    Ok(written)
}

impl<'a> Builder<'a> {
    fn new(counted: &'a Counted<'a>) -> Self {
        let mut builder = Self {
            counted,
            names: Names::new(counted),
            profile: Profile::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
        };
        builder.string("");
        let unit = counted.counts.assignment.unit.id();
        let values = [(unit, "count"), ("samples", "count")];
        builder.profile.sample_type = values.map(|(kind, unit)| builder.value_type(kind, unit)).to_vec();
        let run = &counted.snapshot.run;
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        builder.profile.time_nanos = signed(run.started);
        builder.profile.duration_nanos = signed(run.duration);
        builder.mappings();
        builder
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let next = i64::try_from(self.profile.string_table.len()).unwrap_or(i64::MAX);
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), next);
        next
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType {
            kind: self.string(kind),
            unit: self.string(unit),
        }
    }

    /// One mapping for each module, at the addresses of the snapshot.
    fn mappings(&mut self) {
        let mut ranges: HashMap<ModuleIdx, (u64, u64)> = HashMap::new();
        for text in &self.counted.snapshot.text {
            let (start, end) = (text.start.0, text.start.0.saturating_add(text.bytes.len() as u64));
            let range = ranges.entry(text.module).or_insert((start, end));
            *range = (range.0.min(start), range.1.max(end));
        }
        for (module, idx) in self.counted.snapshot.modules.iter().zip((0u32..).map(ModuleIdx)) {
            let (start, end) = ranges.get(&idx).copied().unwrap_or_default();
            let mapping = Mapping {
                id: u64::from(idx.0) + 1,
                memory_start: start,
                memory_limit: end,
                filename: self.string(&hbbp_model::printable::harmless(&module.name)),
                build_id: self.string(&build_id(self.counted.snapshot, idx).unwrap_or_default()),
                has_functions: true,
            };
            self.profile.mapping.push(mapping);
        }
    }

    fn process(&self, process: ProcessIdx) -> String {
        self.names.process_image(process)
    }

    fn sample(&mut self, site: Site, values: [u64; 2], labels: &[(&str, &str)]) {
        let label = |(key, value): &(&str, &str)| Label {
            key: self.string(key),
            str: self.string(value),
        };
        let label = labels.iter().map(label).collect();
        let value = values.map(|n| i64::try_from(n).unwrap_or(i64::MAX)).to_vec();
        let location = self.location(site);
        self.profile.sample.push(Sample {
            location_id: vec![location],
            value,
            label,
        });
    }

    fn location(&mut self, site: Site) -> u64 {
        if let Some(known) = self.locations.get(&site) {
            return *known;
        }
        let id = self.locations.len() as u64 + 1;
        let function = self.function(site);
        self.profile.location.push(Location {
            id,
            mapping_id: u64::from(site.module.0) + 1,
            address: site.addr.0,
            line: vec![Line {
                function_id: function,
                line: 0,
            }],
        });
        self.locations.insert(site, id);
        id
    }

    fn function(&mut self, site: Site) -> u64 {
        let name = self.names.function(site);
        if let Some(known) = self.functions.get(&(site.module, name.clone())) {
            return *known;
        }
        let id = self.functions.len() as u64 + 1;
        let text = self.string(&name);
        let filename = self.names.module(site).to_owned();
        let filename = self.string(&filename);
        self.profile.function.push(Function {
            id,
            name: text,
            system_name: text,
            filename,
        });
        self.functions.insert((site.module, name), id);
        id
    }
}
