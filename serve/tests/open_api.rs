//! `/openapi.json` against the server: every route is in it and the other way around; every example of a request, and wrong
//! requests, have the answers that it says.

use crate::client::{Answer, config, exchange, get, of_encoder, request, translating};
use serde_json::{Map, Value};
use simdformer_serve::Server;
use simdformer_testing::published::encoder;
use std::collections::BTreeSet;

/// Whether a value is of a schema. What the document does not use is a panic, so that nothing is overlooked.
struct Schemas<'d>(&'d Value);

impl Schemas<'_> {
    fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let wrong = |why: &str| Err(format!("{why}: {value} is not {schema}"));
        for (key, rule) in schema.as_object().unwrap() {
            match (&key[..], value) {
                ("$ref", _) => {
                    let name = rule.as_str().unwrap().strip_prefix('#').unwrap();
                    self.check(self.0.pointer(name).unwrap(), value)?;
                }
                ("type", _) => {
                    let fits = match rule.as_str().unwrap() {
                        "string" => value.is_string(),
                        "number" => value.is_number(),
                        "integer" => value.is_u64(),
                        "boolean" => value.is_boolean(),
                        "array" => value.is_array(),
                        "object" => value.is_object(),
                        "null" => value.is_null(),
                        other => panic!("{other}"),
                    };
                    if !fits {
                        return wrong("type");
                    }
                }
                ("const", _) if rule != value => return wrong("const"),
                ("enum", _) if !rule.as_array().unwrap().contains(value) => return wrong("enum"),
                ("oneOf", _) => {
                    let of = rule.as_array().unwrap().iter();
                    // An empty list is a list of anything.
                    if !of.map(|one| self.check(one, value)).any(|found| found.is_ok()) {
                        return wrong("oneOf");
                    }
                }
                ("items", Value::Array(list)) => {
                    list.iter().try_for_each(|item| self.check(rule, item))?;
                }
                ("required", Value::Object(fields)) => {
                    let names = rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                    if let Some(name) = names.into_iter().find(|name| !fields.contains_key(*name)) {
                        return wrong(&format!("no {name}"));
                    }
                }
                ("properties", Value::Object(fields)) => {
                    for (name, schema) in rule.as_object().unwrap() {
                        fields.get(name).map_or(Ok(()), |field| self.check(schema, field))?;
                    }
                }
                ("additionalProperties", Value::Object(fields)) => {
                    let known = schema["properties"].as_object().cloned().unwrap_or_default();
                    let more = fields.keys().find(|name| !known.contains_key(*name));
                    if let (Some(name), false) = (more, rule.as_bool().unwrap()) {
                        return wrong(&format!("also {name}"));
                    }
                }
                ("minimum", Value::Number(number)) if number.as_f64() < rule.as_f64() => {
                    return wrong("minimum");
                }
                ("maximum", Value::Number(number)) if number.as_f64() > rule.as_f64() => {
                    return wrong("maximum");
                }
                (
                    "const"
                    | "enum"
                    | "items"
                    | "required"
                    | "properties"
                    | "additionalProperties"
                    | "minimum"
                    | "maximum"
                    | "description"
                    | "format",
                    _,
                ) => (),
                (other, _) => panic!("{other}"),
            }
        }
        Ok(())
    }

    /// An answer must have a status, a media type and a body of the document.
    fn check_answer(&self, operation: &Value, answer: &Answer, what: &str) {
        let documented = &operation["responses"][answer.status.to_string()];
        assert!(documented.is_object(), "{what}: {} is not documented: {answer:?}", answer.status);
        let media = answer.header("content-type").split(';').next().unwrap();
        let schema = &documented["content"][media]["schema"];
        assert!(schema.is_object(), "{what}: {media} is not documented");
        let value = match media {
            "application/json" => answer.json(),
            _ => Value::String(answer.body.clone()),
        };
        self.check(schema, &value).unwrap_or_else(|why| panic!("{what}: {why}"));
    }
}

fn document(server: &Server) -> Value {
    let answer = get(server, "/openapi.json");
    assert_eq!(answer.header("content-type"), "application/json");
    answer.json()
}

/// The methods and paths of the document.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let of_path = |(path, item)| {
        let item: &Map<String, Value> = Value::as_object(item).unwrap();
        item.iter().map(move |(method, operation)| (&method[..], path, operation))
    };
    let paths = document["paths"].as_object().unwrap().iter();
    paths.map(|(path, item)| (&path[..], item)).flat_map(of_path).collect()
}

#[test]
fn every_route_is_documented() {
    let document = document(&translating(config()));
    let documented: BTreeSet<(String, String)> = operations(&document)
        .into_iter()
        .map(|(method, path, _)| (method.to_owned(), path.to_owned()))
        .collect();
    let source = include_str!("../src/server.rs");
    let routes = source.lines().filter_map(|line| line.trim().strip_prefix("route!("));
    let routes = routes.map(|route| {
        let (method, rest) = route.split_once(' ').unwrap();
        (method.to_owned(), rest.split('"').nth(1).unwrap().to_owned())
    });
    assert_eq!(routes.collect::<BTreeSet<_>>(), documented);
}

/// Sends what the document shows to a server that has the models for the paths of `routes`.
fn check_examples(server: &Server, routes: &[&str]) -> usize {
    let document = document(server);
    let schemas = Schemas(&document);
    let mut sent = 0;
    for (method, path, operation) in operations(&document) {
        if method == "get" {
            schemas.check_answer(operation, &get(server, path), path);
            sent += 1;
            continue;
        }
        let json = &operation["requestBody"]["content"]["application/json"];
        let examples = json["examples"].as_object().cloned().unwrap_or_default();
        for (name, example) in examples {
            let what = format!("{path}, {name}");
            schemas.check(&json["schema"], &example["value"]).unwrap();
            let body = example["value"].to_string();
            let bytes = request("POST", path, "application/json", body.as_bytes());
            let answer = exchange(server.address(), &bytes).unwrap();
            let status = if routes.contains(&path) { 200 } else { 404 };
            assert_eq!(answer.status, status, "{what}: {answer:?}");
            schemas.check_answer(operation, &answer, &what);
            sent += 1;
        }
        if !operation["requestBody"].is_object() || !routes.contains(&path) {
            continue;
        }
        for (media, body) in [
            ("application/json", "{}".to_owned()),
            ("application/json", "[".to_owned()),
            ("image/png", String::new()),
            ("application/json", "a".repeat(3 << 20)),
        ] {
            let bytes = request("POST", path, media, body.as_bytes());
            // A client that still sends may find the connection closed.
            if let Some(answer) = exchange(server.address(), &bytes) {
                assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
                schemas.check_answer(operation, &answer, path);
                sent += 1;
            }
        }
    }
    sent
}

#[test]
fn examples_of_translation_have_the_documented_answers() {
    let routes = ["/translate", "/translate/stream", "/detect", "/languages"];
    assert!(check_examples(&translating(config()), &routes) > 30);
}

#[test]
fn examples_of_encoders_have_the_documented_answers() {
    let (bert, cross) = (encoder("bert"), encoder("bert_cross"));
    let detects = ["/detect"];
    let embeds = [&["/v1/embeddings"][..], &detects].concat();
    check_examples(&of_encoder(&bert, config(), false), &embeds);
    let ranks = [&["/rerank", "/v1/rerank", "/v2/rerank"][..], &detects].concat();
    check_examples(&of_encoder(&cross, config(), true), &ranks);
}

/// With a key, and with a full queue.
#[test]
fn refusals_have_the_documented_answers() {
    let mut secret = config();
    secret.key = Some("key".to_owned());
    let server = translating(secret);
    let document = document(&server);
    let schemas = Schemas(&document);
    for (method, path, operation) in operations(&document) {
        let answer = match method {
            "get" => get(&server, path),
            _ if path.contains("audio") && cfg!(not(feature = "transcribe")) => continue,
            _ => {
                let bytes = request("POST", path, "application/json", b"{\"q\": \"a\"}");
                exchange(server.address(), &bytes).unwrap()
            }
        };
        let open = operation["security"].as_array().unwrap().is_empty();
        assert_eq!(answer.status, if open { 200 } else { 401 }, "{path}: {answer:?}");
        schemas.check_answer(operation, &answer, path);
    }
}
