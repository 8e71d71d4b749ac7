//! The advice's page: whole, escaped, self-contained, of bounded size, and calm about strange lists.
//!
//! The pages are left in the target folder's `tmp/advice` to be looked at.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use advice::{Card, Held, Question, advise, groups, report};
use model::{
    Arrival, Catalogue, Demand, GpuAsk, GpuDemand, GpuModel, Isolation, ModeSet, Owner, Share,
    SharingKind, Trace, Workload, WorkloadId,
};
use simulator::Predicted;

fn model(name: &str) -> Arc<GpuModel> {
    Catalogue::shipped().unwrap().get_or_enter(name)
}

fn workload(name: &str, each: GpuAsk) -> Workload {
    let gpus = GpuDemand {
        count: 1,
        each,
        accepts: Vec::new(),
        isolation: Isolation::None,
        modes: ModeSet::ALL,
    };
    let demand = Demand { gpus: Some(gpus), ..Demand::default() };
    Workload::new(WorkloadId(0), name.into(), Owner::new("o"), demand)
}

fn part(name: &str, compute_milli: u32, memory_gib: u64) -> Workload {
    workload(name, GpuAsk::Fraction { compute_milli, memory_mib: memory_gib << 10 })
}

fn only(mut workload: Workload, kinds: &[SharingKind]) -> Workload {
    workload.demand.gpus.as_mut().unwrap().modes = ModeSet::of(kinds);
    workload
}

fn page_of(
    list: Vec<Workload>,
    model: &Arc<GpuModel>,
    runs_ms: Option<u64>,
    price: Option<f64>,
) -> String {
    let arrival = |workload| Arrival { at_ms: 0, runs_ms, workload };
    let trace = Trace { arrivals: list.into_iter().map(arrival).collect() };
    let speeds = Predicted::default();
    let question = Question { trace: &trace, model, cards: 8, speeds: &speeds };
    report::html(&question, &advise(&question).unwrap(), price)
}

fn page(list: Vec<Workload>) -> String {
    page_of(list, &model("a100-80gb"), None, Some(2.5))
}

fn mix() -> Vec<Workload> {
    let mut wide = workload("train", GpuAsk::Whole);
    wide.demand.gpus.as_mut().unwrap().count = 2;
    let halves = ["left", "right"].map(|name| workload(name, GpuAsk::Profile("3g.40gb".into())));
    let mut list = vec![wide, part("llm", 500, 37), part("images", 250, 18), part("speech", 0, 14)];
    list.extend(halves);
    list
}

/// Hostile: markup, quotes, what turns the reading direction, no name at all, and names without end.
fn hostile() -> Vec<Workload> {
    let names = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'&amp;\u{202e}gnp\u{1b}[31m",
        "",
        "训练任务训练任务训练任务训练任务训练任务训练任务训练任务训练任务训练任务训练任务训练任务",
    ];
    let long = "x".repeat(10_000);
    names.iter().chain([&long.as_str()]).map(|name| part(name, 100, 4)).collect()
}

/// Asserts that every element opened is closed, in order.
fn assert_well_formed(page: &str) {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').unwrap();
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "closed in order");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
            if name == "style" {
                rest = &rest[rest.find("</style>").unwrap()..];
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

fn leave(name: &str, page: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("advice");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.html")), page).unwrap();
}

#[test]
fn pages_are_well_formed_and_load_and_run_nothing() {
    let unknown = page_of(vec![part("w", 500, 0)], &model("no-such-card"), None, None);
    let timed = page_of(mix(), &model("a100-80gb"), Some(3_600_000), Some(2.5));
    let pages = [
        ("mix", page(mix())),
        ("timed", timed),
        ("hostile", page(hostile())),
        ("empty", page(Vec::new())),
        ("unknown", unknown),
    ];
    for (name, page) in pages {
        leave(name, &page);
        assert_well_formed(&page);
        assert!(page.starts_with("<!DOCTYPE html>"));
        for loads in ["http://", "https://", "url(//", "@import", "src=\"", "href=", "<script"] {
            assert!(!page.contains(loads), "{name}: {loads}");
        }
        for number in ["\"NaN", "\"inf", ">NaN", ">inf", "\"-"] {
            assert!(!page.contains(number), "{name}: {number}");
        }
    }
}

#[test]
fn names_stay_text_and_are_cut() {
    let page = page(hostile());
    assert!(!page.contains("<script") && !page.contains("<img"));
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
    assert!(page.contains("&#60;script&#62;alert(1)&#60;/script&#62;"), "in full, as text");
    assert!(page.contains("(unnamed)") && page.contains("训练任务"));
    assert!(!page.contains(&"x".repeat(50)), "a long name is cut");
}

#[test]
fn ten_thousand_workloads_that_all_differ_make_a_page_of_bounded_size() {
    // Each name is a kind of its own, with what takes most room when it is escaped.
    let name = |at: usize| format!("{:<<60}{at:x}k", "'");
    let list: Vec<Workload> = (0..10_000).map(|at| part(&name(at), 0, at as u64 % 3 + 1)).collect();
    let page = page_of(list, &model("a100-80gb"), None, None);
    leave("ten-thousand", &page);
    assert_well_formed(&page);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    assert!(page.contains("that differ are not drawn"));
}

#[test]
fn cards_that_are_alike_are_drawn_once_with_their_number() {
    let list = (0..24).map(|at| part(&format!("llm-{at}"), 500, 37)).collect();
    let page = page(list);
    assert!(page.contains("<h3>12 × mps</h3>"), "two on a card");
    assert_eq!(page.matches("class=\"plot lanes\"").count(), 1);
}

#[test]
fn who_came_first_makes_no_other_card() {
    let held = |workload: u64, memory_mib| Held {
        workload,
        share: Share::MemoryCapped { memory_mib, compute_milli: 0 },
        memory_mib,
        compute_milli: 0,
        speed_milli: 500,
    };
    let card = |held: [Held; 2]| Card { mode: SharingKind::MemoryCapped, held: held.into() };
    let cards = [card([held(0, 100), held(1, 200)]), card([held(1, 200), held(0, 100)])];
    let arrival = |workload| Arrival { at_ms: 0, runs_ms: None, workload };
    let trace = Trace { arrivals: vec![arrival(part("a", 0, 1)), arrival(part("b", 0, 1))] };
    let all = groups::cards(&trace, &cards);
    assert_eq!(all.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [2]);
}

#[test]
fn instances_lie_at_their_slices_and_what_is_lost_is_told() {
    let page = page(
        ["left", "right"].map(|name| workload(name, GpuAsk::Profile("3g.40gb".into()))).into(),
    );
    assert!(page.contains("8 of 8 taken") && page.contains("6 of 7 taken, 1 lost"));
    // The second starts at the middle of the memory, 418 units wide from 1, and after 3/7 of the compute.
    for place in ["x=\"210\" y=\"18\" width=\"209\"", "x=\"180.1\" y=\"92\" width=\"179.1\""] {
        assert!(page.contains(place), "{place}");
    }
    assert!(page.contains("4/8 of memory, 3/7 of compute"));
    let small = self::page(vec![workload("small", GpuAsk::Profile("1g.10gb".into()))]);
    assert!(small.contains(">1g.10gb</text>"), "the name of the smallest fits onto its slice");
}

/// From and to of the rectangles of a class in a lane, in user units.
fn stretches(svg: &str, class: &str, top: &str) -> Vec<(f64, f64)> {
    let start = format!("<rect class=\"{class}\" x=\"");
    let read = |rect: &str| -> Option<(f64, f64)> {
        let (x, rest) = rect.split_once(&format!("\" y=\"{top}\" width=\""))?;
        let (x, width): (f64, f64) = (x.parse().ok()?, rest.split_once('"')?.0.parse().ok()?);
        Some((x, x + width))
    };
    let rects = svg.split(&start).skip(1);
    rects.filter_map(|rect| read(rect.split_once('>')?.0)).collect()
}

/// Asserts that all stretches of a lane, one behind the other, are the card, from one edge to the other.
fn assert_tiled(svg: &str, top: &str) {
    let mut all = stretches(svg, "held", top);
    let is_in = |one: &(f64, f64), all: &[(f64, f64)]| {
        all.iter().any(|held| held.0 - 0.2 <= one.0 && one.1 <= held.1 + 0.2)
    };
    let asked = stretches(svg, "asked", top);
    let alone: Vec<(f64, f64)> = asked.into_iter().filter(|one| !is_in(one, &all)).collect();
    all.extend(alone);
    all.extend(["free", "lost"].iter().flat_map(|class| stretches(svg, class, top)));
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let end = all.iter().fold(1.0, |end: f64, (from, to)| {
        assert!((from - end).abs() < 0.25, "a gap or two on one place at {from}: {all:?}");
        *to
    });
    assert!((end - 419.0).abs() < 0.25, "{all:?}");
}

#[test]
fn areas_are_to_scale_and_fill_the_card() {
    let page = page(mix());
    let cards: Vec<&str> = page.split("class=\"plot lanes\"").skip(1).collect();
    let svgs = cards.iter().map(|card| card.split_once("</svg>").unwrap().0);
    let mut booked = 0;
    for svg in svgs {
        assert_tiled(svg, "18");
        assert_tiled(svg, "92");
        let Some((told, _)) = svg.split_once(" GiB of 79.4 GiB booked") else { continue };
        let told: f64 = told.rsplit([' ', '>']).next().unwrap().parse().unwrap();
        let drawn: f64 = stretches(svg, "asked", "18").iter().map(|(from, to)| to - from).sum();
        assert!((drawn / 418.0 * 79.4 - told).abs() < 0.15, "{drawn} units for {told} GiB");
        booked += 1;
    }
    assert!(cards.len() >= 4 && booked >= 1, "{} cards, {booked} booked", cards.len());
}

#[test]
fn compute_asked_beyond_the_card_is_shown() {
    let turns = |name| only(part(name, 400, 10), &[SharingKind::TimeSlice]);
    let page = page(vec![turns("one"), turns("two"), turns("three")]);
    assert!(page.contains("1,200/1000 asked"));
    // The card ends at 1000 of 1200.
    assert!(page.contains("class=\"over\" x=\"349.3\" y=\"92\" width=\"69.7\""));
}

#[test]
fn money_is_told_by_the_day_and_the_month_with_what_is_saved() {
    let page = page(vec![part("a", 500, 20), part("b", 500, 20)]);
    // One card instead of two: 24 h at 2.5.
    for figure in ["<td>60.00</td><td>60.00</td><td>1,800.00</td><td>1,800.00</td>", "50.0 %"] {
        assert!(page.contains(figure), "{figure}");
    }
    let none = page_of(vec![part("a", 500, 20)], &model("a100-80gb"), None, None);
    assert!(none.contains("--price") && !none.contains("cost a month"));
}

#[test]
fn what_never_starts_saves_nothing() {
    let mut wide = workload("wide", GpuAsk::Whole);
    wide.demand.gpus.as_mut().unwrap().count = 9;
    let list = vec![wide, part("small", 500, 20), part("other", 500, 20)];
    let page = page_of(list, &model("a100-80gb"), Some(1000), Some(1.0));
    assert!(page.contains("1 never start"));
    assert!(page.contains("not comparable with whole cards"));
}

fn kinds(count: usize) -> Vec<Workload> {
    let names = ["ResNet-50 (batch size 64)", "LM (batch size 20)", "<b>&nobody's</b>"];
    let name =
        |at: usize| names.get(at).map_or_else(|| format!("kind {at}"), |name| (*name).into());
    (0..count).map(|at| Workload { kind: name(at), ..part(&format!("w-{at}"), 0, 4) }).collect()
}

#[test]
fn who_slows_down_whom_is_shown_for_all_pairs_and_what_is_not_known_is_marked() {
    let page = page(kinds(3));
    leave("kinds", &page);
    assert_well_formed(&page);
    assert_eq!(page.matches(" of its speed alone, give or take ").count(), 9);
    assert!(page.contains("under time-slice"), "turns with caps are turns");
    let pair = "ResNet-50 (batch size 64) beside LM (batch size 20): α ";
    assert!(page.contains(pair) && !page.contains("<b>"));
    let alpha = |pair: &str| -> f64 {
        let (_, rest) = page.split_once(&format!("{pair}: α ")).unwrap();
        rest.split_once(',').unwrap().0.parse().unwrap()
    };
    let slowed = alpha("LM (batch size 20) beside ResNet-50 (batch size 64)");
    let slows = alpha("ResNet-50 (batch size 64) beside LM (batch size 20)");
    assert!(slowed > 2.0 * slows, "as measured on the P100: {slowed} {slows}");
    assert_eq!(
        page.matches("?</text>").count(),
        1,
        "of the unknown beside itself nothing is known"
    );
    assert_eq!(
        page.matches("class=\"middle sure\"").count(),
        9,
        "how sure each is stands in sight"
    );
    assert!(page.contains("1 of 9 figures: neither has been measured"));
    let mut with_silent = kinds(3);
    with_silent.extend([part("silent", 0, 4), part("silent", 0, 4)]);
    assert!(self::page(with_silent).contains("2 workloads say no kind and cannot be on the map"));
    let none = self::page(mix());
    assert!(none.contains("says what kind it is") && !none.contains("class=\"plot heat\""));
}

#[test]
fn of_many_kinds_the_most_frequent_are_shown() {
    let page = page(kinds(30));
    assert_eq!(page.matches(" of its speed alone, give or take ").count(), 24 * 24);
    assert!(page.contains("6 more kinds are left out"));
}

#[test]
fn figures_on_the_map_can_be_read_in_both_modes() {
    let page = page(kinds(2));
    let style = &page[page.find("--heat0").unwrap()..];
    let (light, dark) = style.split_once("prefers-color-scheme: dark").unwrap();
    for mode in [light, dark] {
        for (heat, ink) in [
            ("heat0", "on-heat"),
            ("heat1", "on-heat"),
            ("heat2", "on-heat"),
            ("heat3", "on-heat"),
            ("heat4", "on-hot"),
            ("heat5", "on-hot"),
        ] {
            let (one, other) = (luminance(variable(mode, heat)), luminance(variable(mode, ink)));
            let contrast = (one.max(other) + 0.05) / (one.min(other) + 0.05);
            assert!(contrast >= 4.5, "--{heat}: {contrast}");
        }
    }
}

fn variable<'a>(style: &'a str, name: &str) -> &'a str {
    let (_, rest) = style.split_once(&format!("--{name}: #")).unwrap();
    &rest[..6]
}

/// Relative luminance as WCAG 2 defines it.
fn luminance(hex: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4)
}
