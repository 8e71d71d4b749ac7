//! The rules for jobs that come through slurmrestd, where no command and no plugin has seen them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use support::{Site, up};

/// Submits a held job; returns the answer.
fn post(site: &Site, job: &str, environment: &str) -> String {
    let token = site.does(&["scontrol", "token", "username=root"]);
    let token = token.trim().split_once('=').unwrap().1.to_string();
    let variables = site.cluster.environment();
    let url = variables.iter().find(|(name, _)| name == "SLURM_LAB_REST_URL").unwrap();
    let host = url.1.strip_prefix("http://").unwrap();
    let body = format!(
        "{{\"script\": \"#!/bin/sh\\ntrue\\n\", \"job\": {{{job} \"hold\": true, \"current_working_directory\": \
         \"/tmp\", \"standard_output\": \"/dev/null\", \"environment\": {{{environment} \"PATH\": \"/bin\"}}}}}}"
    );
    let head = format!(
        "POST /slurm/v0.0.38/job/submit HTTP/1.1\r\nHost: {host}\r\nConnection: Close\r\n\
         X-SLURM-USER-NAME: root\r\nX-SLURM-USER-TOKEN: {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn jobs_by_rest_meet_the_same_rules() {
    let Some(site) = up("jobs_by_rest_meet_the_same_rules", "optional", true) else { return };
    let answer = post(&site, "", "\"HOTPOT_GPU_MEM\": \"2G\",");
    assert!(answer.contains("\"job_id\": 1"), "{answer}");
    assert_eq!(site.field("1", "TresPerNode"), "gres:shard:3");
    assert_eq!(site.field("1", "AdminComment"), "hotpot(gpu-mem=2048)");
    for (job, environment, why) in [
        (
            "",
            "\"HOTPOT_GPU_MEM\": \"200G\",",
            "HOTPOT_GPU_MEM=200G: the largest card here has 79.0 GiB",
        ),
        ("\"gres\": \"shard:81\",", "", "--gres=shard:81: shards are of one card"),
        (
            "\"gres\": \"gpu:1\",",
            "\"HOTPOT_GPU_MEM\": \"2G\",",
            "HOTPOT_GPU_MEM=2G together with --gres=gpu:1",
        ),
    ] {
        let answer = post(&site, job, environment);
        assert!(answer.contains("\"error_code\": 2072"), "{why}: {answer}");
        // 22.05 passes the text to commands only; for others it is in the log.
        let log = std::fs::read_to_string(site.folder.join("log/slurmctld.log")).unwrap();
        assert!(log.contains(&format!("hotpot: refused user 0: {why}")), "{why}: {log}");
    }
    assert_eq!(site.does(&["squeue", "--noheader", "--format=%A"]), "1\n");
}
