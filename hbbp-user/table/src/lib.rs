#![doc = include_str!("../README.md")]

use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, Float64Builder, StringDictionaryBuilder, UInt32Builder, UInt64Builder,
};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use hbbp_code::locate::Site;
use hbbp_model::snapshot::ProcessIdx;
use hbbp_output::export::build_id;
use hbbp_output::export::counted::{Counted, Executed, Only, is_in};
use hbbp_output::export::image::Written;
use hbbp_output::export::names::{ClassNames, Names};

/// The columns in the order of the table.
#[derive(Default)]
struct Columns {
    ring: Words,
    module: Words,
    build_id: Words,
    function: Words,
    address: UInt64Builder,
    process: Words,
    pid: UInt32Builder,
    class: ClassColumns,
    bytes: BinaryBuilder,
    method: Words,
    amounts: AmountColumns,
}

/// The columns of what was counted.
#[derive(Default)]
struct AmountColumns {
    amount: Float64Builder,
    unit: Words,
    samples: UInt64Builder,
}

/// The columns of what an instruction is ([`ClassNames`]).
#[derive(Default)]
struct ClassColumns {
    mnemonic: Words,
    extension: Words,
    category: Words,
}

/// Few distinct strings, each stored once.
type Words = StringDictionaryBuilder<Int32Type>;

/// What a row says in addition to its counts.
struct Row<'a> {
    site: Site,
    process: ProcessIdx,
    ring: String,
    class: Rc<ClassNames>,
    bytes: &'a [u8],
    method: &'static str,
}

/// Writes the table of a profile, or of one of its modules, as Parquet with Snappy compression.
pub fn write_parquet(counted: &Counted<'_>, only: Only<'_>, out: &mut dyn Write) -> io::Result<Written> {
    let (batch, written) = table(counted, only)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .build();
    let mut bytes = Vec::new();
    let mut writer =
        ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).map_err(io::Error::other)?;
    writer.write(&batch).map_err(io::Error::other)?;
    writer.close().map_err(io::Error::other)?;
    out.write_all(&bytes)?;
    Ok(written)
}

/// Writes the same table as an Arrow IPC file.
pub fn write_arrow(counted: &Counted<'_>, only: Only<'_>, out: &mut dyn Write) -> io::Result<Written> {
    let (batch, written) = table(counted, only)?;
    let mut writer = FileWriter::try_new(out, &batch.schema()).map_err(io::Error::other)?;
    let written_all = writer.write(&batch).and_then(|()| writer.finish());
    written_all.map_err(io::Error::other)?;
    Ok(written)
}

fn table(counted: &Counted<'_>, only: Only<'_>) -> io::Result<(RecordBatch, Written)> {
    let mut written = Written::default();
    let mut names = Names::new(counted);
    let mut columns = Columns::default();
    let mut samples = counted.samples();
    samples.retain(|(site, _), _| is_in(only, site.module));
    let mut executions = 0.0;
    for executed in counted.executed_in(only) {
        let hits = samples.remove(&(executed.site, executed.process)).unwrap_or(0);
        executions += executed.executions;
        written.add("samples", hits);
        let row = row(counted, &mut names, &executed);
        columns.add(counted, &names, &row, executed.executions, hits)?;
    }
    for ((site, process), hits) in samples {
        written.add("samples", hits);
        let ring = counted.module(site).map_or(
            "",
            |module| if module.kind.is_kernel() { "kernel" } else { "user" },
        );
        let row = Row {
            site,
            process,
            ring: ring.to_owned(),
            class: Rc::default(),
            bytes: &[],
            method: "",
        };
        columns.add(counted, &names, &row, 0.0, hits)?;
    }
    written.add(
        "for all instructions",
        counted.whole(&[executions]).first().copied().unwrap_or(0),
    );
    Ok((columns.finish().map_err(io::Error::other)?, written))
}

fn row<'a>(counted: &'a Counted<'_>, names: &mut Names<'_>, executed: &Executed) -> Row<'a> {
    Row {
        site: executed.site,
        process: executed.process,
        ring: executed.ring.to_string(),
        class: names.class(executed),
        bytes: counted.bytes(executed),
        method: executed.method.name(),
    }
}

impl Columns {
    fn add(
        &mut self,
        counted: &Counted<'_>,
        names: &Names<'_>,
        row: &Row<'_>,
        amount: f64,
        samples: u64,
    ) -> io::Result<()> {
        let (comm, pid) = names.process(row.process);
        let id = build_id(counted.snapshot, row.site.module).unwrap_or_default();
        let function = names.function(row.site);
        let words: [(&mut Words, &str); 10] = [
            (&mut self.ring, &row.ring),
            (&mut self.module, names.module(row.site)),
            (&mut self.build_id, &id),
            (&mut self.function, &function),
            (&mut self.process, &comm),
            (&mut self.class.mnemonic, &row.class.mnemonic),
            (&mut self.class.extension, &row.class.extension),
            (&mut self.class.category, &row.class.category),
            (&mut self.method, row.method),
            (&mut self.amounts.unit, counted.counts.assignment.unit.id()),
        ];
        for (column, word) in words {
            column.append(word).map_err(io::Error::other)?;
        }
        self.address.append_value(row.site.addr.0);
        self.pid.append_value(pid);
        self.bytes.append_value(row.bytes);
        self.amounts.amount.append_value(amount);
        self.amounts.samples.append_value(samples);
        Ok(())
    }

    fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let columns: [(&str, &mut dyn ArrayBuilder); 15] = [
            ("ring", &mut self.ring),
            ("module", &mut self.module),
            ("build_id", &mut self.build_id),
            ("function", &mut self.function),
            ("address", &mut self.address),
            ("process", &mut self.process),
            ("pid", &mut self.pid),
            ("mnemonic", &mut self.class.mnemonic),
            ("extension", &mut self.class.extension),
            ("category", &mut self.class.category),
            ("bytes", &mut self.bytes),
            ("method", &mut self.method),
            ("amount", &mut self.amounts.amount),
            ("unit", &mut self.amounts.unit),
            ("samples", &mut self.amounts.samples),
        ];
        let arrays: Vec<(&str, ArrayRef)> = columns
            .into_iter()
            .map(|(name, builder)| (name, builder.finish()))
            .collect();
        let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), false);
        let fields: Vec<Field> = arrays.iter().map(field).collect();
        let arrays = arrays.into_iter().map(|(_, array)| array).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
    }
}
