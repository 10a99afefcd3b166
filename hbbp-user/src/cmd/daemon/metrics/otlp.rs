//! The metrics as OTLP, from their text of OpenMetrics: one text is the source of all forms.

use std::fmt;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};

use hbbp_output::export::otlp::{key_value, otlp_resource, otlp_scope};

/// The request that exports the metrics of a host; times are in ns since 1970.
pub(super) fn otlp_metrics(
    text: &str,
    host: &str,
    started: u64,
    now: u64,
) -> Result<ExportMetricsServiceRequest, fmt::Error> {
    let mut metrics: Vec<Metric> = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), help) => metrics.push(Metric {
                name: name.to_owned(),
                description: help.unwrap_or_default().to_owned(),
                ..Metric::default()
            }),
            (Some("#"), Some("UNIT"), _, unit) => {
                let metric = metrics.last_mut().ok_or(fmt::Error)?;
                unit.unwrap_or_default().clone_into(&mut metric.unit);
            }
            (Some("#"), Some("TYPE"), _, kind) => {
                let metric = metrics.last_mut().ok_or(fmt::Error)?;
                metric.data = Some(data(kind.unwrap_or_default()));
            }
            (Some("#"), ..) => {}
            _ => {
                let point = point(line, started, now).ok_or(fmt::Error)?;
                match metrics.last_mut().and_then(|metric| metric.data.as_mut()) {
                    Some(Data::Sum(sum)) => sum.data_points.push(point),
                    Some(Data::Gauge(gauge)) => gauge.data_points.push(point),
                    _ => return Err(fmt::Error),
                }
            }
        }
    }
    Ok(ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(otlp_resource(host)),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(otlp_scope()),
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    })
}

/// What the samples of a kind are put into.
fn data(kind: &str) -> Data {
    match kind {
        "counter" => Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        _ => Data::Gauge(Gauge::default()),
    }
}

/// The sample of a line `name{labels} value`.
fn point(line: &str, started: u64, now: u64) -> Option<NumberDataPoint> {
    let (name, value) = line.rsplit_once(' ')?;
    let labels = name
        .split_once('{')
        .and_then(|(_, labels)| labels.strip_suffix('}'));
    Some(NumberDataPoint {
        attributes: attributes(labels.unwrap_or_default())?,
        start_time_unix_nano: started,
        time_unix_nano: now,
        value: Some(Value::AsDouble(value.parse().ok()?)),
        ..NumberDataPoint::default()
    })
}

/// Labels `name="value",..`, where `\` escapes itself, quotes and ends of lines.
fn attributes(labels: &str) -> Option<Vec<KeyValue>> {
    let mut attributes = Vec::new();
    let mut remaining = labels;
    while !remaining.is_empty() {
        let (key, after) = remaining.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()? {
                    (_, 'n') => '\n',
                    (_, other) => other,
                }),
                (_, other) => value.push(other),
            }
        };
        attributes.push(key_value(key, &value));
        let after = after.get(end + 1..)?;
        remaining = after.strip_prefix(',').unwrap_or(after);
    }
    Some(attributes)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value;

    use super::*;

    #[test]
    fn labels_are_read_as_they_are_escaped() {
        let read = attributes(r#"a="x",b="say \"\\\n\", b=\"",c="""#).unwrap();
        let read: Vec<_> = read
            .into_iter()
            .map(|it| (it.key, it.value.unwrap().value.unwrap()))
            .collect();
        let text = |value: &str| any_value::Value::StringValue(value.to_owned());
        let expected = [("a", "x"), ("b", "say \"\\\n\", b=\""), ("c", "")];
        assert_eq!(read, expected.map(|(key, value)| (key.to_owned(), text(value))));
        for wrong in ["a", "a=\"", "a=\"x\\"] {
            assert_eq!(attributes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_sample_is_a_point_of_its_metric() {
        let text = "# HELP m Help of it.\n# TYPE m counter\nm_total{a=\"b c\"} 2.5\nm_total{a=\"d\"} 1\n\
                    # HELP g_seconds G.\n# TYPE g_seconds gauge\n# UNIT g_seconds seconds\ng_seconds 7\n# EOF\n";
        let request = otlp_metrics(text, "h", 1, 2).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        assert_eq!((&*metrics[0].name, &*metrics[1].unit), ("m", "seconds"));
        let Some(Data::Sum(sum)) = &metrics[0].data else {
            panic!("{metrics:?}")
        };
        let values: Vec<_> = sum.data_points.iter().map(|it| it.value.unwrap()).collect();
        assert_eq!(values, [Value::AsDouble(2.5), Value::AsDouble(1.0)]);
        assert!(sum.is_monotonic && matches!(metrics[1].data, Some(Data::Gauge(_))));
        assert!(otlp_metrics("m 1\n", "h", 1, 2).is_err());
    }
}
