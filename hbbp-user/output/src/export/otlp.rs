//! A profile of OTLP (opentelemetry-proto, `profiles/v1development`: in development, its layout may change): executions of each
//! instruction by process, with ring, mnemonic, category and extension as attributes.
//!
//! The largest samples have a location each; the others are added to one for each ring, so that the sum is that of the
//! mix whatever the bound is.

use std::collections::HashMap;
use std::hash::Hash;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary, ResourceProfiles,
    Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use sha2::{Digest as _, Sha256};

use super::build_id;
use super::counted::{Counted, Executed};
use super::names::Names;
use hbbp_code::locate::Site;
use hbbp_estimate::Unit;
use hbbp_model::addr::Ring;
use hbbp_model::names::Workload;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::{ModuleIdx, ProcessIdx, Run};

/// Bytes of the id of a profile.
const PROFILE_ID: usize = 16;
/// Values for each sample of the estimates, where these are samples: thousandths, as those of relative executions.
const PER_SAMPLE: f64 = 1000.0;
/// The function of samples that have no location of their own.
const OTHER: &str = "[other]";

/// A table of a dictionary: each value once, the first one empty.
#[derive(Debug)]
struct Table<K, V> {
    found: HashMap<K, i32>,
    values: Vec<V>,
}

impl<K: Eq + Hash, V: Default> Table<K, V> {
    fn new() -> Self {
        Self {
            found: HashMap::new(),
            values: vec![V::default()],
        }
    }

    /// The index of a value; `make` makes it where it is new.
    fn index(&mut self, key: K, make: impl FnOnce() -> V) -> i32 {
        let next = i32::try_from(self.values.len()).unwrap_or(0);
        let values = &mut self.values;
        *self.found.entry(key).or_insert_with(|| {
            values.push(make());
            next
        })
    }
}

/// What tells one attribute from another.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Told {
    Text(String),
    Number(i64),
}

/// A request that is being built.
struct Builder<'a> {
    counted: &'a Counted<'a>,
    names: Names<'a>,
    strings: Table<String, String>,
    functions: Table<(i32, i32), Function>,
    mappings: Table<ModuleIdx, Mapping>,
    locations: Table<Option<Site>, Location>,
    stacks: Table<i32, Stack>,
    attributes: Table<(&'static str, Told), KeyValueAndUnit>,
    samples: HashMap<(i32, Vec<i32>), i64>,
}

/// The request that exports a profile, with at most `most` samples of their own, and how many instructions have none.
pub fn otlp_profile(counted: &Counted<'_>, most: usize) -> (ExportProfilesServiceRequest, usize) {
    let mut builder = Builder::new(counted);
    let executed: Vec<Executed> = counted.executed().collect();
    // Samples of a block are spread over its instructions: each has a fraction of one.
    let is_samples = counted.counts.assignment.unit.is_samples();
    let factor = if is_samples { PER_SAMPLE } else { 1.0 };
    let amounts = executed.iter().map(|executed| factor * executed.executions);
    let amounts: Vec<f64> = amounts.collect();
    let mut samples: Vec<(Executed, u64)> = executed.into_iter().zip(counted.whole(&amounts)).collect();
    samples.retain(|(_, count)| 0 < *count);
    // A stable sort: samples of the same size keep their order.
    samples.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let folded = samples.len().saturating_sub(most);
    for (nth, (executed, count)) in samples.iter().enumerate() {
        if nth < most {
            builder.add(executed, *count);
        } else {
            builder.add_other(executed.ring, *count);
        }
    }
    (builder.finish(), folded)
}

/// What a host is called in OTLP.
pub fn otlp_resource(host: &str) -> Resource {
    let attributes = [
        ("service.name", "hbbp-sys"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("host.name", host),
        ("os.type", "linux"),
    ];
    Resource {
        attributes: attributes
            .iter()
            .map(|(key, value)| key_value(key, value))
            .collect(),
        ..Resource::default()
    }
}

/// What made the data.
pub fn otlp_scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "hbbp-sys".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// An attribute.
pub fn key_value(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(text(value.to_owned())),
        ..KeyValue::default()
    }
}

const fn text(value: String) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(value)),
    }
}

impl<'a> Builder<'a> {
    fn new(counted: &'a Counted<'a>) -> Self {
        let mut strings = Table::new();
        strings.found.insert(String::new(), 0);
        Self {
            counted,
            names: Names::new(counted),
            strings,
            functions: Table::new(),
            mappings: Table::new(),
            locations: Table::new(),
            stacks: Table::new(),
            attributes: Table::new(),
            samples: HashMap::new(),
        }
    }

    fn add(&mut self, executed: &Executed, count: u64) {
        let class = self.names.class(executed);
        let mut attributes = vec![
            self.attribute("cpu.mode", Told::Text(executed.ring.to_string())),
            self.attribute("hbbp.mnemonic", Told::Text(class.mnemonic.clone())),
            self.attribute("hbbp.category", Told::Text(class.category.clone())),
            self.attribute("hbbp.extension", Told::Text(class.extension.clone())),
        ];
        attributes.extend(self.of_process(executed.process));
        let location = self.location(executed.site, executed.ring);
        self.sample(location, attributes, count);
    }

    /// The attributes of a process image; the kernel has none.
    fn of_process(&mut self, process: ProcessIdx) -> Vec<i32> {
        let image = self.counted.snapshot.processes.get(process.0 as usize);
        let Some(image) = image.filter(|_| process != ProcessIdx::KERNEL) else {
            return Vec::new();
        };
        let cgroup = image
            .cgroup
            .and_then(|it| self.counted.snapshot.cgroups.get(it.0 as usize));
        let workload = cgroup.map(|path| Workload::of(path)).unwrap_or_default();
        let mut attributes = vec![
            self.attribute("process.pid", Told::Number(i64::from(image.tgid))),
            self.attribute("process.executable.name", Told::Text(harmless(&image.comm))),
        ];
        for (key, value) in [
            ("process.linux.cgroup", workload.cgroup),
            ("k8s.pod.uid", workload.pod),
            ("container.id", workload.container),
        ] {
            if !value.is_empty() {
                attributes.push(self.attribute(key, Told::Text(harmless(&value))));
            }
        }
        attributes
    }

    fn add_other(&mut self, ring: Ring, count: u64) {
        let attributes = vec![self.attribute("cpu.mode", Told::Text(ring.to_string()))];
        let name = self.string(OTHER);
        let function = self.function(name, 0);
        let location = self.locations.index(None, || Location {
            lines: vec![line(function)],
            ..Location::default()
        });
        self.sample(location, attributes, count);
    }

    fn sample(&mut self, location: i32, attributes: Vec<i32>, count: u64) {
        let stack = self.stacks.index(location, || Stack {
            location_indices: vec![location],
        });
        let sum = self.samples.entry((stack, attributes)).or_default();
        *sum = sum.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn location(&mut self, site: Site, ring: Ring) -> i32 {
        if let Some(known) = self.locations.found.get(&Some(site)) {
            return *known;
        }
        let frame = match ring {
            Ring::Kernel => "kernel",
            Ring::User => "native",
        };
        let frame = self.attribute("profile.frame.type", Told::Text(frame.to_owned()));
        let name = self.names.function(site);
        let module = self.names.module(site).to_owned();
        let (name, module) = (self.string(&name), self.string(&module));
        let function = self.function(name, module);
        let mapping = self.mapping(site.module, module);
        self.locations.index(Some(site), || Location {
            mapping_index: mapping,
            address: site.addr.0,
            lines: vec![line(function)],
            attribute_indices: vec![frame],
        })
    }

    fn mapping(&mut self, module: ModuleIdx, filename: i32) -> i32 {
        if let Some(known) = self.mappings.found.get(&module) {
            return *known;
        }
        let id = build_id(self.counted.snapshot, module);
        let id = id.map(|id| self.attribute("process.executable.build_id.gnu", Told::Text(id)));
        // Addresses are those of the file, as in all profiles of ours: where it was mapped differs from process to process.
        self.mappings.index(module, || Mapping {
            memory_limit: u64::MAX,
            filename_strindex: filename,
            attribute_indices: id.into_iter().collect(),
            ..Mapping::default()
        })
    }

    fn function(&mut self, name: i32, filename: i32) -> i32 {
        self.functions.index((name, filename), || Function {
            name_strindex: name,
            system_name_strindex: name,
            filename_strindex: filename,
            start_line: 0,
        })
    }

    fn string(&mut self, text: &str) -> i32 {
        self.strings.index(text.to_owned(), || text.to_owned())
    }

    fn attribute(&mut self, key: &'static str, value: Told) -> i32 {
        let key_strindex = self.string(key);
        self.attributes.index((key, value.clone()), || KeyValueAndUnit {
            key_strindex,
            value: Some(match value {
                Told::Text(value) => text(value),
                Told::Number(value) => AnyValue {
                    value: Some(Value::IntValue(value)),
                },
            }),
            unit_strindex: 0,
        })
    }

    fn finish(mut self) -> ExportProfilesServiceRequest {
        let run = &self.counted.snapshot.run;
        let unit = self.counted.counts.assignment.unit;
        let of_one = if unit == Unit::Executions {
            "count"
        } else {
            "thousandths"
        };
        let sample_type = ValueType {
            type_strindex: self.string(unit.id()),
            unit_strindex: self.string(of_one),
        };
        let samples = self.samples.into_iter();
        let mut samples: Vec<Sample> = samples
            .map(|((stack, attributes), value)| sample(stack, attributes, value))
            .collect();
        samples.sort_by(|a, b| {
            let key = |it: &Sample| (it.stack_index, it.attribute_indices.clone());
            key(a).cmp(&key(b))
        });
        let profile = Profile {
            sample_type: Some(sample_type),
            samples,
            time_unix_nano: run.started,
            duration_nano: run.duration,
            profile_id: profile_id(run),
            ..Profile::default()
        };
        ExportProfilesServiceRequest {
            resource_profiles: vec![ResourceProfiles {
                resource: Some(otlp_resource(&harmless(&run.host))),
                scope_profiles: vec![ScopeProfiles {
                    scope: Some(otlp_scope()),
                    profiles: vec![profile],
                    ..ScopeProfiles::default()
                }],
                ..ResourceProfiles::default()
            }],
            dictionary: Some(ProfilesDictionary {
                mapping_table: self.mappings.values,
                location_table: self.locations.values,
                function_table: self.functions.values,
                link_table: vec![Link::default()],
                string_table: self.strings.values,
                attribute_table: self.attributes.values,
                stack_table: self.stacks.values,
            }),
        }
    }
}

fn sample(stack_index: i32, attribute_indices: Vec<i32>, value: i64) -> Sample {
    Sample {
        stack_index,
        attribute_indices,
        values: vec![value],
        ..Sample::default()
    }
}

fn line(function_index: i32) -> Line {
    Line {
        function_index,
        ..Line::default()
    }
}

/// The same for the same interval of the same host, so that a request that is sent twice counts once.
fn profile_id(run: &Run) -> Vec<u8> {
    let mut hash = Sha256::new();
    hash.update(run.host.as_bytes());
    hash.update(&run.kernel_build_id);
    for number in [run.started, run.duration] {
        hash.update(number.to_le_bytes());
    }
    hash.finalize().iter().copied().take(PROFILE_ID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::tests::{snapshot, stream};
    use hbbp_estimate::rule::PAPER;
    use hbbp_model::addr::Va;

    #[test]
    fn sums_are_those_of_the_mix_whatever_the_bound() {
        let streams = [(0x1000, 0x1002, 30), (0x2001, 0x2002, 7)];
        let streams = streams.map(|(start, end, hits)| stream(Va(start), Va(end), hits));
        let snapshot = snapshot(&streams, &[]);
        let counted = Counted::new(&snapshot, &PAPER.parse().unwrap());
        let expected: f64 = counted.executed().map(|it| it.executions).sum();
        for (most, n_folded) in [(usize::MAX, 0), (2, 3), (0, 5)] {
            let (request, folded) = otlp_profile(&counted, most);
            assert_eq!(folded, n_folded);
            let profile = &request.resource_profiles[0].scope_profiles[0].profiles[0];
            let sum: i64 = profile.samples.iter().flat_map(|it| &it.values).sum();
            assert_eq!(sum as f64, expected.round());
            let dictionary = request.dictionary.unwrap();
            assert_eq!(dictionary.string_table[0], "");
            assert_eq!(dictionary.location_table[0], Location::default());
            assert_eq!(profile.profile_id.len(), PROFILE_ID);
            for sample in &profile.samples {
                let stack = &dictionary.stack_table[usize::try_from(sample.stack_index).unwrap()];
                assert_eq!(stack.location_indices.len(), 1);
                assert!(sample.attribute_indices.iter().all(|it| 0 < *it));
            }
        }
    }
}
