//! What goes wrong between a hub and the command: each failure is repaired, or is an error that says what to do. After
//! every error nothing incomplete is used, and the next run gives the right files.

use crate::command::{err, out};
use crate::hub::{CONFIG, NEEDED, Place, WEIGHTS, files, names, nothing};
use crate::hub_server::{Answer, REPOSITORY, Request, git_sha1};
use std::fs;
use std::time::{Duration, Instant};

/// A model whose weights are answered with a fault, the first `times` times.
fn weights(times: usize, fault: fn(&Request, &mut Answer)) -> Place {
    Place::new(move |request, answer| {
        if request.is_body(WEIGHTS) && request.earlier < times {
            fault(request, answer);
        }
    })
}

/// The first bytes that were requested of the weights.
fn starts(place: &Place) -> Vec<Option<usize>> {
    place.hub.bodies(WEIGHTS).iter().map(Request::from).collect()
}

const ALWAYS: usize = usize::MAX;

/// Calls `check` for all cases at once, because most of their time is the pauses between attempts.
fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let check = &check;
            scope.spawn(move || check(case));
        }
    });
}

#[test]
fn connections_that_end_early_are_continued() {
    let place = weights(2, |_, answer| answer.cut = Some(100_000));
    place.succeeds(&[]);
    assert_eq!(starts(&place), [None, Some(100_000), Some(200_000)]);
}

#[test]
fn connections_that_end_before_any_byte_are_tried_again_and_then_an_error() {
    let place = weights(2, |_, answer| answer.cut = Some(0));
    place.succeeds(&[]);
    let place = weights(ALWAYS, |_, answer| answer.cut = Some(0));
    place.fails(&[], "the same command continues where it stopped");
    assert_eq!(starts(&place).len(), 3);
}

#[test]
fn stalled_connections_are_continued() {
    let place = weights(1, |_, answer| {
        (answer.cut, answer.stall) = (Some(100_000), Some(Duration::from_secs(9)));
    });
    let begin = Instant::now();
    place.succeeds(&[]);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(starts(&place), [None, Some(100_000)]);
}

#[test]
fn a_server_that_always_stalls_is_an_error_and_the_part_stays() {
    let place = weights(ALWAYS, |request, answer| {
        let some = if request.earlier == 0 { 50_000 } else { 0 };
        (answer.cut, answer.stall) = (Some(some), Some(Duration::from_secs(9)));
    });
    place.fails(&[("SIMDFORMER_HUB_RETRIES", "0")], "sent nothing for 1 s, several times");
    assert_eq!(fs::metadata(place.incomplete(WEIGHTS)).unwrap().len(), 50_000);
}

#[test]
fn a_body_that_is_longer_than_listed_is_an_error() {
    let place = weights(1, |_, answer| {
        answer.body.push(1);
        answer.chunked = true;
    });
    place.fails(&[], "model.safetensors: expected 300000 bytes, found a body that is longer");
    place.succeeds(&[]);
}

#[test]
fn lengths_that_contradict_the_list_are_an_error() {
    for length in [299_999, 300_001, 0] {
        let place = Place::new(move |request, answer| {
            if request.is_body(WEIGHTS) && request.earlier == 0 {
                answer.length = Some(length);
            }
        });
        place.fails(&[], &format!("expected 300000 bytes, found a body of {length}"));
        place.succeeds(&[]);
    }
}

#[test]
fn wrong_bytes_are_an_error_and_are_deleted() {
    let place = weights(1, |_, answer| answer.body[150_000] ^= 1);
    place.fails(&[], "model.safetensors: expected the checksum ");
    assert!(!place.incomplete(WEIGHTS).exists());
    place.succeeds(&[]);
    // Of a small file the checksum is that of git.
    let place = Place::new(|request, answer| {
        if request.path.ends_with(CONFIG) && request.earlier == 0 {
            answer.body[3] ^= 1;
        }
    });
    place.fails(&[], "config.json: expected the checksum ");
    place.succeeds(&[]);
}

#[test]
fn a_file_that_changes_between_two_requests_is_downloaded_again() {
    // The first part is of another content.
    let place = weights(1, |_, answer| {
        answer.body[7] ^= 1;
        answer.cut = Some(100_000);
    });
    place.succeeds(&[]);
    assert_eq!(starts(&place), [None, Some(100_000), None]);
}

#[test]
fn a_file_that_differs_from_the_list_is_an_error() {
    let place = Place::new(|request, answer| {
        if request.path.ends_with(CONFIG) && request.earlier == 0 {
            answer.body = b"{}".to_vec();
            answer.headers = vec![("ETag", format!("\"{}\"", git_sha1(b"{}")))];
        }
    });
    place.fails(&[], "config.json: the list of files says ");
    place.succeeds(&[]);
}

#[test]
fn parts_of_earlier_runs_that_are_wrong_are_not_used() {
    for part in [vec![7; 1000], vec![7; 300_000], vec![7; 300_001]] {
        let place = Place::new(nothing);
        fs::create_dir_all(place.folder().join("blobs")).unwrap();
        fs::write(place.incomplete(WEIGHTS), part).unwrap();
        place.succeeds(&[]);
    }
    // A whole part needs no request.
    let place = Place::new(nothing);
    fs::create_dir_all(place.folder().join("blobs")).unwrap();
    fs::write(place.incomplete(WEIGHTS), place.hub.file(WEIGHTS)).unwrap();
    place.succeeds(&[]);
    assert!(starts(&place).is_empty());
}

#[cfg(unix)]
#[test]
fn nothing_is_written_through_a_link() {
    let place = Place::new(nothing);
    let victim = place.home.0.join("victim");
    fs::write(&victim, "mine").unwrap();
    fs::create_dir_all(place.folder().join("blobs")).unwrap();
    std::os::unix::fs::symlink(&victim, place.incomplete(WEIGHTS)).unwrap();
    place.succeeds(&[]);
    assert_eq!(fs::read_to_string(victim).unwrap(), "mine");
}

#[test]
fn servers_without_ranges_send_the_file_again() {
    let place = Place::new(|request, answer| {
        if request.is_body(WEIGHTS) {
            *answer = Answer { status: 200, body: files()[WEIGHTS].clone(), ..Answer::default() };
            answer.cut = (request.earlier == 0).then_some(100_000);
        }
    });
    place.succeeds(&[]);
    assert_eq!(starts(&place), [None, Some(100_000)]);
}

#[test]
fn ranges_that_were_not_requested_are_not_used() {
    let cases = [
        ("bytes 0-299999/300000", 206),
        ("bytes 100000-299999/400000", 206),
        ("none", 206),
        ("bytes */300000", 416),
    ];
    at_once(cases, |(range, status)| {
        let place = Place::new(move |request, answer| {
            if request.is_body(WEIGHTS) && request.earlier == 0 {
                answer.cut = Some(100_000);
            } else if request.is_body(WEIGHTS) && request.earlier == 1 {
                answer.status = status;
                answer.headers = vec![("Content-Range", range.to_owned())];
            }
        });
        place.succeeds(&[]);
        assert_eq!(starts(&place), [None, Some(100_000), None], "{range}");
    });
}

#[test]
fn chunked_bodies_are_read_and_continued() {
    let place = weights(2, |request, answer| {
        (answer.chunked, answer.pace) = (true, Some((30_000, Duration::ZERO)));
        answer.cut = (request.earlier == 0).then_some(120_000);
    });
    place.succeeds(&[]);
    assert_eq!(starts(&place), [None, Some(120_000)]);
}

#[test]
fn redirects_in_a_circle_are_an_error() {
    let place = Place::new(|request, answer| {
        if request.path.contains("/revision/") {
            *answer = Answer::redirect(&request.path);
        }
    });
    place.fails(&[], "was not followed: it was the 11th; check HF_ENDPOINT");
}

#[test]
fn redirects_to_nowhere_are_an_error() {
    for (location, part) in [
        (Some("file:///etc/passwd"), "its address is \"file:///etc/passwd\", status 302"),
        (Some("other"), "its address is \"other\", status 302"),
        (None, "it names no address, status 302"),
    ] {
        let place = Place::new(move |request, answer| {
            if request.path.contains("/resolve/") {
                *answer = Answer::redirect(location.unwrap_or_default());
                if location.is_none() {
                    answer.headers.clear();
                }
            }
        });
        place.fails(&[], part);
    }
}

/// A model that was renamed.
#[test]
fn redirects_within_the_hub_are_followed_with_the_token() {
    let place = Place::new(|request, answer| {
        if request.path.starts_with("/api/models/test/model/revision/main") && request.earlier == 0
        {
            *answer = Answer::redirect("/api/models/test/model/revision/v1");
        }
    });
    place.succeeds(&[("HF_TOKEN", "hf_x")]);
    assert_eq!(place.hub.requests()[1].headers["authorization"], "Bearer hf_x");
}

#[test]
fn models_that_do_not_exist_are_an_error() {
    let place = Place::new(nothing);
    let hub = &place.hub.endpoint;
    let output = place.run_command(&["get", "test/modle"], &[]);
    let expected = format!(
        "simdformer: {hub} has no public model test/modle; check the spelling; for a private model set HF_TOKEN to a \
         token that may read it\n"
    );
    assert_eq!((output.status.code(), err(&output)), (Some(1), &expected[..]));
    let output = place.run_command(&["get", "test/modle"], &[("HF_TOKEN", "hf_x")]);
    let expected = format!(
        "simdformer: {hub} has no model test/modle that the token of HF_TOKEN may read; check the spelling and the \
         rights of the token\n"
    );
    assert_eq!((output.status.code(), err(&output)), (Some(1), &expected[..]));
    let output = place.run_command(&["translate", "--model", "models/fr-en", "x"], &[]);
    let expected = format!(
        "simdformer: there is no directory models/fr-en, so it is the name of a model: {hub} has no public model \
         models/fr-en; check the spelling; "
    );
    assert!(err(&output).starts_with(&expected), "{}", err(&output));
}

#[test]
fn revisions_that_do_not_exist_are_an_error() {
    let place = Place::new(nothing);
    let output = place.run_command(&["get", "test/model@mian"], &[]);
    let expected = "simdformer: test/model has no revision mian; a revision is a branch, a tag, a whole commit, or \
                    refs/pr/N\n";
    assert_eq!((output.status.code(), err(&output)), (Some(1), expected));
}

#[test]
fn a_rejected_token_is_an_error_without_the_token() {
    let place = Place::new(|_, answer| {
        *answer = Answer::error(401, "");
        answer.headers.push(("X-Error-Message", "Invalid credentials".to_owned()));
    });
    place.fails(
        &[("HF_TOKEN", "hf_secret")],
        "does not accept the token of HF_TOKEN; make a new one at ",
    );
    assert!(!err(&place.get(&[("HF_TOKEN", "hf_secret")])).contains("hf_secret"));
}

#[test]
fn gated_models_are_an_error_that_names_the_page_with_the_terms() {
    let place = Place::new(|request, answer| {
        let status = if request.headers.contains_key("authorization") { 403 } else { 401 };
        *answer = Answer::error(status, "GatedRepo");
    });
    let page = format!("accept its terms at {}/test/model", place.hub.endpoint);
    place.fails(&[], &format!("test/model is gated: {page}, then set HF_TOKEN"));
    place.fails(&[("HF_TOKEN", "hf_x")], "gated and the account of the token of HF_TOKEN may not");
}

#[test]
fn a_listed_file_that_is_missing_is_an_error() {
    let place = Place::new(|request, answer| {
        if request.path.ends_with("vocab.json") {
            *answer = Answer::error(404, "EntryNotFound");
        }
    });
    place.fails(&[], "vocab.json: status 404");
}

#[test]
fn a_forbidden_file_is_an_error_with_the_words_of_the_server() {
    let place = Place::new(|request, answer| {
        if request.path.contains("/resolve/") {
            *answer = Answer::error(403, "");
            answer.headers.push(("X-Error-Message", "Blocked in your country".to_owned()));
        }
    });
    place.fails(&[], "status 403, Blocked in your country");
}

#[test]
fn a_server_with_too_many_requests_is_given_time_or_is_an_error() {
    let limited = |after: &'static str, times: usize| {
        Place::new(move |request, answer| {
            if request.path.contains("/revision/") && request.earlier < times {
                *answer = Answer::error(429, "");
                answer.headers.push(("Retry-After", after.to_owned()));
            }
        })
    };
    let place = limited("1", 1);
    let begin = Instant::now();
    place.succeeds(&[]);
    assert!(begin.elapsed() >= Duration::from_secs(1));
    let place = limited("3600", ALWAYS);
    place.fails(
        &[],
        "takes no more requests from here for now (429); try again in 3600 s; with HF_TOKEN",
    );
    let requests = place.hub.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
}

#[test]
fn errors_of_the_server_are_tried_again_and_then_an_error() {
    at_once([408, 500, 502, 503, 504], |status| {
        let place = Place::new(move |request, answer| {
            if request.is_body(WEIGHTS) && request.earlier == 0 {
                *answer = Answer::error(status, "");
            }
        });
        place.succeeds(&[]);
    });
    let place = weights(ALWAYS, |_, answer| *answer = Answer::error(503, ""));
    place.fails(&[], "cannot answer now (503); try again later");
}

#[test]
fn without_a_network_the_cache_is_used_or_it_is_an_error() {
    // Nothing listens on this port.
    let nowhere = [("HF_ENDPOINT", "http://127.0.0.1:1")];
    let place = Place::new(nothing);
    place.fails(&nowhere, "cannot reach 127.0.0.1:1: ");
    place.succeeds(&[]);
    let output = place.run_command(&["get", REPOSITORY], &nowhere);
    assert_eq!(output.status.code(), Some(0));
    let note = "simdformer: cannot reach 127.0.0.1:1: ";
    assert!(err(&output).starts_with(note), "{}", err(&output));
    assert!(err(&output).ends_with("; using the copy in the cache\n"), "{}", err(&output));
    assert_eq!(out(&output).trim_end(), place.snapshot().to_str().unwrap());
}

#[test]
fn a_model_that_is_not_in_the_cache_is_an_error_offline() {
    let place = Place::new(nothing);
    place.succeeds(&[]);
    let output = place.run_command(&["get", "test/modle"], &[("HF_HUB_OFFLINE", "1")]);
    let (start, end) = (
        "simdformer: test/modle is not complete in ",
        ", and HF_HUB_OFFLINE forbids the network; unset it once\n",
    );
    let text = err(&output);
    assert!(text.starts_with(start) && text.contains(end), "{text}");
}

#[test]
fn answers_that_are_not_those_of_a_hub_are_an_error() {
    for body in ["<!doctype html><p>Log in to the network", "{\"sha\": \"../../x\"}", "[]", ""] {
        let place = Place::new(move |request, answer| {
            if request.path.contains("/revision/") {
                (answer.status, answer.body) = (200, body.as_bytes().to_vec());
            }
        });
        place.fails(
            &[],
            "expected the description of a model with its commit; check that HF_ENDPOINT is a hub",
        );
    }
}

#[test]
fn names_from_the_server_do_not_lead_out_of_the_cache() {
    let evil = |from: &'static str, to: &'static str| {
        Place::new(move |request, answer| {
            if request.path.contains("/tree/") {
                answer.body =
                    String::from_utf8(answer.body.clone()).unwrap().replace(from, to).into_bytes();
            }
        })
    };
    // A checksum is the name of a blob.
    let place = evil("\"oid\":\"", "\"oid\":\"../../../");
    place.fails(&[], "expected a file with its path, size and checksum");
    // Files outside of the directory are not listed.
    let place = evil("\"path\":\"config.json\"", "\"path\":\"../../../../config.json\"");
    let output = place.get(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(names(&place.home.0), ["hub"]);
    assert!(!place.snapshot().join(CONFIG).exists());
    // The shards of an index.
    let mut files = files();
    files.remove(WEIGHTS);
    let index = br#"{"weight_map": {"a": "../../../../evil"}}"#.to_vec();
    files.insert("model.safetensors.index.json".to_owned(), index);
    let place = Place::with_files(files, Box::new(nothing));
    let output = place.get(&[]);
    assert!(
        err(&output).contains("names \"../../../../evil\", which is outside of the model"),
        "{}",
        err(&output)
    );
}

#[test]
fn models_without_weights_that_are_read_are_an_error() {
    let mut files = files();
    files.remove(WEIGHTS);
    files.remove("pytorch_model.bin");
    let place = Place::with_files(files, Box::new(nothing));
    let output = place.get(&[]);
    let part = "expected weights in model.safetensors, pytorch_model.bin or model.bin, found tf_model.h5; a pull request";
    assert!(err(&output).contains(part), "{}", err(&output));
    assert!(place.hub.bodies("source.spm").is_empty());
}

/// The limit on the size of a file gives the same kind of error as a full disk.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_the_download_continues_with_more_space() {
    use std::process::Command;
    let place = Place::new(nothing);
    let program = env!("CARGO_BIN_EXE_simdformer");
    // 128 blocks of 512 or 1024 bytes, and no signal.
    let script = format!("trap '' XFSZ; ulimit -f 128; exec {program} get {REPOSITORY} --quiet");
    let command = place.command(&[], &[]);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &script]).env_clear();
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let text = err(&output);
    assert!(
        text.contains("no space left for ") && text.contains(" bytes more are needed; "),
        "{text}"
    );
    let part = fs::metadata(place.incomplete(WEIGHTS)).unwrap().len() as usize;
    assert!(part > 0 && part < 300_000, "{part}");
    place.succeeds(&[]);
    assert_eq!(starts(&place), [None, Some(part)]);
}

/// The files of the cache cannot be written. The administrator of a machine may write everywhere.
#[test]
fn a_cache_that_cannot_be_written_is_an_error() {
    let place = Place::new(nothing);
    let file = place.home.0.join("file");
    fs::write(&file, "").unwrap();
    let output = place.get(&[("HF_HUB_CACHE", file.join("hub").to_str().unwrap())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("file/hub/models--test--model/"), "{}", err(&output));
    let all: usize = NEEDED.iter().map(|file| place.hub.bodies(file).len()).sum();
    assert_eq!(all, 0);
}
