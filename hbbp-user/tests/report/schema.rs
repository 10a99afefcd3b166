//! The JSON report is what its schema says: every golden file, and every field of it.

use std::path::Path;

use serde_json::Value;

/// The schema that users find next to the code of the report.
fn schema() -> Value {
    serde_json::from_str(include_str!("../../output/src/report/mix.schema.json")).unwrap()
}

/// What is wrong with a document, by the text of its schema.
pub(crate) fn faults_of(schema: &str, document: &Value) -> Vec<String> {
    let schema = serde_json::from_str(schema).unwrap();
    faults(&schema, &schema, document, "")
}

/// What is wrong with a value, by the keywords of JSON Schema that ours uses. A field that the schema does not name is
/// wrong too: the schema is the documentation.
fn faults(root: &Value, schema: &Value, value: &Value, path: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#')).unwrap();
        return faults(root, target, value, path);
    }
    let mut faults_found = Vec::new();
    let mut expect = |ok: bool, what: String| {
        if !ok {
            faults_found.push(format!("{path}: {what}, found {value}"));
        }
    };
    let fits = |name: &str| match name {
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("{other} is not a type of JSON"),
    };
    match &schema["type"] {
        Value::String(name) => expect(fits(name), format!("expected {name}")),
        Value::Array(names) => expect(
            names.iter().any(|name| fits(name.as_str().unwrap())),
            format!("expected one of {names:?}"),
        ),
        _ => expect(
            schema.get("const").is_some() || schema.get("enum").is_some(),
            "the schema says nothing".to_owned(),
        ),
    }
    if let Some(only) = schema.get("const") {
        expect(only == value, format!("expected {only}"));
    }
    if let Some(choices) = schema["enum"].as_array() {
        expect(choices.contains(value), format!("expected one of {choices:?}"));
    }
    if let Some(object) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            expect(object.contains_key(name), format!("`{name}` is missing"));
        }
        for (name, value) in object {
            match schema["properties"].get(name) {
                Some(property) => {
                    faults_found.extend(faults(root, property, value, &format!("{path}/{name}")));
                }
                None => faults_found.push(format!("{path}: `{name}` is not in the schema")),
            }
        }
    }
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        faults_found.extend(faults(root, &schema["items"], item, &format!("{path}/{n}")));
    }
    faults_found
}

#[test]
fn golden_reports_match_the_schema() {
    let schema = schema();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut n_reports = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "json") {
            let report = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(
                faults(&schema, &schema, &report, ""),
                Vec::<String>::new(),
                "{}",
                path.display()
            );
            n_reports += 1;
        }
    }
    assert!(4 <= n_reports, "{n_reports} reports");
}

#[test]
fn schema_finds_what_is_wrong() {
    let schema = schema();
    let golden = include_str!("../golden/stacked.json");
    let found = |from: &str, to: &str| {
        assert!(golden.contains(from));
        let report = serde_json::from_str(&golden.replacen(from, to, 1)).unwrap();
        faults(&schema, &schema, &report, "")
    };
    let n_faults = |from, to| found(from, to).len();
    assert_eq!(n_faults("mix/2", "mix/3"), 1);
    assert_eq!(n_faults("\"n_cpus\": 2", "\"n_cpus\": \"2\""), 1);
    assert_eq!(n_faults("\"n_cpus\"", "\"n_cores\""), 2);
    assert_eq!(n_faults("\"LBR\"", "\"PT\""), 1);
    assert_eq!(
        n_faults("\"std_error\": 5322965.33797613", "\"std_error\": \"?\""),
        1
    );
}
