//! Amounts: what is read, how it is rounded, what is refused.

use formats::quantity::{
    cpu_milli, duration_ms, memory_mib, seconds_ms, share_milli, signed_milli, slurm_memory_mib,
    slurm_time_ms,
};

const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;

#[test]
fn memory_is_read_in_powers_of_1024_and_rounded_up() {
    let cases = [
        ("16GiB", 16384),
        ("2G", 2048),
        ("2 GB", 2048),
        ("512m", 512),
        ("1T", 1 << 20),
        ("0.5GiB", 512),
        ("1025K", 2),
        ("0G", 0),
        ("1024TiB", 1 << 30),
    ];
    for (text, mib) in cases {
        assert_eq!(memory_mib(text), Ok(mib), "{text}");
    }
    assert_eq!(slurm_memory_mib("100"), Ok(100));
}

#[test]
fn shares_are_read_in_thousandths_and_rounded_down() {
    for (text, milli) in
        [("20%", 200), ("0.5", 500), ("0.3333", 333), ("1", 1000), ("100%", 1000), ("33.3 %", 333)]
    {
        assert_eq!(share_milli(text), Ok(milli), "{text}");
    }
}

#[test]
fn cpus_weights_and_seconds_are_exact() {
    assert_eq!(cpu_milli("4.5"), Ok(4500));
    assert_eq!(cpu_milli("0.0001"), Ok(1));
    assert_eq!(signed_milli("-0.25", 1000), Ok(-250));
    assert_eq!(signed_milli("1", 1000), Ok(1000));
    assert_eq!(seconds_ms("1186.5"), Ok(1_186_500));
    assert_eq!(seconds_ms("0.0"), Ok(0));
}

#[test]
fn durations_take_units_or_a_clock() {
    let cases = [
        ("90s", 90 * SECOND),
        ("1h30m", HOUR + 1800 * SECOND),
        ("1h 30min", HOUR + 1800 * SECOND),
        ("250ms", 250),
        ("1.5d", 36 * HOUR),
        ("2w", 14 * 24 * HOUR),
        ("01:30:00", HOUR + 1800 * SECOND),
        ("1-12:00:00", 36 * HOUR),
    ];
    for (text, ms) in cases {
        assert_eq!(duration_ms(text), Ok(ms), "{text}");
    }
}

#[test]
fn slurm_times_take_all_six_forms() {
    let minute = 60 * SECOND;
    let cases = [
        ("90", Some(90 * minute)),
        ("90:30", Some(90 * minute + 30 * SECOND)),
        ("01:30:00", Some(90 * minute)),
        ("2-12", Some(60 * HOUR)),
        ("2-12:30", Some(60 * HOUR + 30 * minute)),
        ("2-12:30:05", Some(60 * HOUR + 30 * minute + 5 * SECOND)),
        ("UNLIMITED", None),
        ("0", None),
    ];
    for (text, ms) in cases {
        assert_eq!(slurm_time_ms(text), Ok(ms), "{text}");
    }
}

#[test]
fn nonsense_is_refused_with_a_way_out() {
    let nines = "9".repeat(5000);
    let long = format!("{nines}GiB");
    let refused = [
        memory_mib("16").map(|_| ()),
        memory_mib("sixteen").map(|_| ()),
        memory_mib("-2GiB").map(|_| ()),
        memory_mib("1e9GiB").map(|_| ()),
        memory_mib("2XiB").map(|_| ()),
        memory_mib("1025TiB").map(|_| ()),
        memory_mib(&long).map(|_| ()),
        memory_mib("").map(|_| ()),
        share_milli("0").map(|_| ()),
        share_milli("1.0001").map(|_| ()),
        share_milli("-5%").map(|_| ()),
        share_milli("NaN").map(|_| ()),
        share_milli("101%").map(|_| ()),
        cpu_milli("inf").map(|_| ()),
        cpu_milli("1000001").map(|_| ()),
        cpu_milli(&nines).map(|_| ()),
        signed_milli("-1.001", 1000).map(|_| ()),
        signed_milli("--1", 1000).map(|_| ()),
        seconds_ms("-1").map(|_| ()),
        seconds_ms(&nines).map(|_| ()),
        duration_ms("90").map(|_| ()),
        duration_ms("30:00").map(|_| ()),
        duration_ms("5 parsecs").map(|_| ()),
        duration_ms("101w101w99999999w").map(|_| ()),
        duration_ms(":::").map(|_| ()),
        duration_ms("").map(|_| ()),
        slurm_time_ms("1h").map(|_| ()),
        slurm_time_ms("1-").map(|_| ()),
        slurm_time_ms("1:2:3:4").map(|_| ()),
        slurm_time_ms(&nines).map(|_| ()),
    ];
    for (at, result) in refused.into_iter().enumerate() {
        let complaint = result.expect_err(&format!("case {at}"));
        assert!(complaint.way_out.starts_with("give "), "case {at}: {complaint}");
        assert!(complaint.what.len() < 200, "case {at}: {complaint}");
    }
}
