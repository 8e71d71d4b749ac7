//! Whole screens, drawn into memory and read as text.

use std::collections::BTreeSet;

use node::account::{Account, Refusal};
use node::live::LiveShare;
use node::sample::AccountSample;
use node::tenant::Tenant;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;
use slurm::queue_view::{QueueView, Told};
use slurm::site::Site;

use super::draw::draw;
use super::parts::Held;
use super::pot::{Class, Sharing, pots};
use super::sample_machine::{inventory, machine, picture, sample};
use super::view::View;
use super::{Picture, print, seats};

fn drawn(width: u16, height: u16, picture: &Picture, view: &View) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, picture, view)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let rows = buffer.content().chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect()
}

#[test]
fn every_gpu_is_on_a_screen_of_80_by_24() {
    let screen = drawn(80, 24, &picture(), &View::default());
    println!("{}", screen.join("\n"));
    let text = screen.join("\n");
    for shown in ["a100-80gb", "mig", "mps", "shared", "single", "idle", "LOST", "37 %", "–"] {
        assert!(text.contains(shown), "{shown}");
    }
    assert!(text.contains("▌slurm 4711") && text.contains("▌1g.10gb"), "{text}");
    assert!(screen[0].contains("6 GPUs") && screen[0].contains("SIMULATED"), "{}", screen[0]);
    assert!(screen[23].contains("q quit") && screen[23].contains("? help"), "{}", screen[23]);
}

/// 3g.40gb takes 4 of 8 memory slices of an A100-80GB, 2g.20gb two, 1g.10gb one, and one is free.
#[test]
fn instances_stand_at_their_slices() {
    let pots = machine();
    let parts: Vec<(f64, f64, Class)> =
        pots[0].parts.iter().map(|part| (part.from, part.to, part.class)).collect();
    let expected =
        [(0.0, 0.5, Class::Slurm), (0.5, 0.75, Class::Empty), (0.75, 0.875, Class::Empty)];
    assert_eq!(parts, expected);
    let kinds: Vec<Sharing> = pots.iter().map(|pot| pot.sharing).collect();
    use Sharing::{Idle, Lost, Mig, Mps, Shared, Single};
    assert_eq!(kinds, [Mig, Mps, Shared, Single, Idle, Lost]);
}

#[test]
fn a_daemon_that_serves_a_gpu_means_mps() {
    let served = std::iter::once("GPU-3".to_string()).collect();
    let pots = pots(&inventory(), &sample(), &served, &[]);
    assert_eq!((pots[3].sharing, pots[3].enforcement), (Sharing::Mps, "cooperative"));
    assert_eq!(pots[4].sharing, Sharing::Idle);
}

/// What was given counts, not what is used; and one that uses nothing yet is there too.
#[test]
fn tasks_are_as_wide_as_what_they_were_given() {
    let held = |task: &str, gpu: &str, kind: &str, memory_mib: u64, start: Option<u8>| Held {
        tenant: Tenant::Task { run: "embed".into(), task: task.into() },
        share: LiveShare {
            gpu: gpu.into(),
            kind: kind.into(),
            memory_mib,
            start,
            enforcement: "cooperative".into(),
            ..LiveShare::default()
        },
    };
    let held = [
        held("0", "GPU-1", "mps", 8192, None),
        held("idle", "GPU-1", "mps", 20_480, None),
        held("instance", "GPU-0", "mig", 0, Some(4)),
        held("all", "GPU-4", "exclusive", 0, None),
    ];
    let pots = pots(&inventory(), &sample(), &BTreeSet::new(), &held);
    let wide = |gpu: usize, name: &str| {
        let part = pots[gpu].parts.iter().find(|part| part.label == name).expect("a part");
        ((part.to - part.from) * 80.0).round()
    };
    assert_eq!((wide(1, "embed/0"), wide(1, "embed/1"), wide(1, "embed/idle")), (8.0, 4.0, 20.0));
    assert_eq!((wide(0, "embed/instance"), wide(4, "embed/all")), (20.0, 80.0));
    let modes = (pots[1].sharing, pots[4].sharing, pots[0].sharing);
    assert_eq!(modes, (Sharing::Mps, Sharing::Exclusive, Sharing::Mig));
}

/// A GPU whose tenants the limiter holds, and its page.
#[test]
fn caps_by_the_limiter_are_shown_with_what_they_cost() {
    let tenant = Tenant::Task { run: "embed".into(), task: "0".into() };
    let share = LiveShare {
        gpu: "GPU-4".into(),
        kind: "memory-capped".into(),
        memory_mib: 2048,
        enforcement: "cooperative".into(),
        compute_milli: 300,
        ..LiveShare::default()
    };
    let held = [Held { tenant: tenant.clone(), share }];
    let mut account = Account {
        memory_bytes: [("plain".to_owned(), 3 << 29), ("context".to_owned(), 300 << 20)].into(),
        over_cap: Refusal {
            asked_bytes: 1 << 30,
            held_bytes: 3 << 29,
            limit_bytes: 2 << 30,
            pid: 7,
        },
        ..Account::default()
    };
    account.counts.refused_by_cap = 12;
    let mut sample = sample();
    sample.gpus[4].accounts = vec![AccountSample {
        tenant,
        cap_bytes: Some(2 << 30),
        compute_milli: Some(300),
        account,
        gpu_ratio: Some(0.29),
        throttled_ratio: Some(0.6),
    }];
    let pots = pots(&inventory(), &sample, &BTreeSet::new(), &held);
    assert_eq!((pots[4].sharing, pots[4].enforcement), (Sharing::MemoryCapped, "cooperative"));
    let view = View { details: true, selected: pots[4].uuid.clone(), ..View::default() };
    let screen = drawn(120, 40, &Picture { pots: pots.clone(), ..picture() }, &view).join("\n");
    println!("{screen}");
    let line = "embed/0                         1.8     2.0      29 %  30 %     60 %  12";
    assert!(screen.contains(line), "{screen}");
    let refused =
        "last refused by the cap: 1 GiB over 1.5 GiB held, of a cap of 2 GiB, 300 MiB of it for";
    assert!(screen.contains(refused), "{screen}");
    let picture = Picture { pots, ..picture() };
    let table = print::table(&picture, 80);
    println!("{table}");
    let line = "     embed/0   1.79 GiB used   of 2 GiB, 30 %   29 % of GPU time\n";
    assert!(table.contains(line), "{table}");
    let narrow = print::table(&picture, 40);
    assert!(narrow.contains("     embed/0   1.79 GiB used\n"), "{narrow}");
}

#[test]
fn tenants_are_as_wide_as_their_memory() {
    let parts = &machine()[2].parts;
    let mut wide: Vec<(f64, Class)> =
        parts.iter().map(|part| ((part.to - part.from) * 80.0, part.class)).collect();
    wide.sort_by(|one, other| one.0.total_cmp(&other.0));
    let classes: Vec<Class> = wide.iter().map(|(_, class)| *class).collect();
    assert_eq!(classes, [Class::Task, Class::User, Class::Pod]);
    assert!((wide[2].0 - 30.0).abs() < 1e-9 && (wide[0].0 - 2.0).abs() < 1e-9, "{wide:?}");
}

#[test]
fn no_size_breaks_any_page() {
    let pages = [
        View::default(),
        View { details: true, scroll: 9999, ..View::default() },
        View { help: true, ..View::default() },
        View { trouble: Some("no answer".into()), paused: true, ..View::default() },
    ];
    for (width, height) in [(1, 1), (2, 3), (10, 5), (20, 8), (40, 10), (79, 23), (200, 60)] {
        for view in &pages {
            drawn(width, height, &picture(), view);
            drawn(width, height, &Picture { pots: Vec::new(), ..picture() }, view);
        }
    }
}

#[test]
fn narrow_screens_give_up_columns_and_keep_the_bars() {
    let screen = drawn(40, 24, &picture(), &View::default());
    println!("{}", screen.join("\n"));
    let text = screen.join("\n");
    assert!(!text.contains("isolation") && text.contains("▌slurm 4711"), "{text}");
    assert!(text.contains("memory GiB"), "{text}");
}

#[test]
fn the_selected_gpu_stays_in_sight() {
    let mut view = View::default();
    let pots = machine();
    for _ in 0..5 {
        let key = ratatui::crossterm::event::KeyCode::Down;
        view.key(key.into(), &pots);
    }
    let screen = drawn(80, 7, &picture(), &view).join("\n");
    assert!(screen.contains("▸  5"), "{screen}");
    assert!(!screen.contains("slurm 4711"), "{screen}");
}

#[test]
fn a_page_shows_tenants_processes_and_what_holds_caps() {
    let view = View { details: true, ..View::default() };
    let screen = drawn(120, 40, &picture(), &view);
    println!("{}", screen.join("\n"));
    let text = screen.join("\n");
    for shown in
        ["slurm 4711", "3g.40gb", "(empty)", "absent: the driver has no", "00000000:00:00.0"]
    {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}

#[test]
fn classes_have_colours_of_their_own() {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &picture(), &View::default())).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let coloured = |colour| buffer.content().iter().any(|cell| cell.fg == colour);
    for colour in [Color::Green, Color::Cyan, Color::Magenta, Color::Yellow, Color::Red] {
        assert!(coloured(colour), "{colour}");
    }
}

#[test]
fn text_and_json_say_the_same() {
    let table = print::table(&picture(), 80);
    println!("{table}{}", print::table(&picture(), 120));
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let tenants: Vec<&str> = table.lines().filter(|line| line.contains(" used")).collect();
    // One in an instance, seven clients, three that share, one alone.
    assert_eq!((tenants.len(), table.lines().count()), (12, 2 + 2 * 6 + 12), "{table}");
    let expected = "     slurm 4711   22 GiB used   of 3g.40gb   20 % of SM time";
    assert_eq!(tenants[0], expected);
    let narrow = print::table(&picture(), 40);
    assert!(narrow.lines().skip(1).all(|line| line.chars().count() <= 40), "{narrow}");
    assert!(narrow.contains("     slurm 4711   22 GiB used\n"), "{narrow}");
    let json: serde_json::Value = serde_json::from_str(&print::json(&picture())).unwrap();
    assert_eq!(json["format"], "hotpot-top/1");
    assert_eq!(json["gpus"][0]["parts"][0]["label"], "slurm 4711");
    assert_eq!(json["gpus"][5]["sharing"], "lost");
    assert!(json["gpus"][5]["busy_ratio"].is_null());
    assert!(json["gpus"][0]["alpha"].is_null());
    assert_eq!(json["gpus"][1]["processes"].as_array().unwrap().len(), 7);
}

/// A cluster of many nodes of eight GPUs.
fn cluster(nodes: usize) -> Picture {
    let nodes: String = (0..nodes)
        .map(|at| format!("NodeName=gpu{at:03} State=IDLE Gres=gpu:a100:8,shard:2536 CPUTot=64\n"))
        .collect();
    let job = "JobId=7 JobName=train\nUserId=ann(1000)\nPriority=1\nJobState=RUNNING\nRequeue=1 BatchFlag=1\nNodeList=gpu000\nSocks/Node=*\n\
               Nodes=gpu000 CPU_IDs=0 Mem=16 GRES=shard:80(IDX:1)";
    let told = Told { nodes: &nodes, jobs: job, ..Told::default() };
    seats::picture(&QueueView::of(&told, 0, 256), &Site::default(), None, None)
}

#[test]
fn a_hundred_nodes_can_be_gone_through() {
    let picture = cluster(100);
    let mut view = View::default();
    let at = |view: &View| drawn(80, 24, &picture, view);
    let first = at(&view);
    println!("{}", first.join("\n"));
    assert!(first[0].contains("100 nodes · 800 GPUs"), "{}", first[0]);
    assert!(first[2].starts_with(" gpu000  idle · 1 job · 0 of 64 CPUs"), "{}", first[2]);
    assert!(first.iter().any(|line| line.contains("▌7 ann train")), "{first:?}");
    assert!(first[23].contains("(by node) 1/800"), "{}", first[23]);
    let key = |view: &mut View, code| view.key(KeyCode::into(code), &picture.pots);
    for pressed in 1..=300_usize {
        key(&mut view, KeyCode::Down);
        let screen = at(&view);
        let (node, index) = (pressed / 8, pressed % 8);
        let mut marked = screen.iter().enumerate().filter(|(_, line)| line.starts_with('▸'));
        let (line, text) = marked.next().unwrap_or_else(|| panic!("{}", screen.join("\n")));
        assert!(text.starts_with(&format!("▸  {index} ")), "{pressed}: {text}");
        // Its node stands above it, and its bar below.
        let name = format!(" gpu{node:03}");
        let above = screen[..line].iter().rev().find(|line| line.starts_with(" gpu"));
        assert!(above.is_some_and(|line| line.starts_with(&name)), "{}", screen.join("\n"));
        assert!(screen[line + 1].contains('▕'), "{}", screen.join("\n"));
    }
    key(&mut view, KeyCode::End);
    let last = at(&view);
    // Two nodes' lines and nine GPUs fill 20 of the 21 lines below the head.
    assert!(last[23].contains("800/800") && last[21].contains('▕'), "{}", last.join("\n"));
    // Out of the nodes' order each GPU says where it is.
    key(&mut view, KeyCode::Char('s'));
    let sorted = at(&view);
    assert!(sorted.iter().any(|line| line.starts_with("▸gpu099/7 ")), "{}", sorted.join("\n"));
    assert!(!sorted.iter().any(|line| line.contains("of 64 CPUs")), "{}", sorted.join("\n"));
}

#[test]
fn a_page_of_a_cluster_says_where() {
    let picture = cluster(1);
    let mut view = View { details: true, ..View::default() };
    view.selected = "gpu000/1".into();
    let text = drawn(100, 30, &picture, &view).join("\n");
    assert!(text.contains("GPU gpu000/1 · a100") && text.contains("59.2 GiB free"), "{text}");
    assert!(text.contains("7 ann train") && text.contains("80 of 317"), "{text}");
    let empty = cluster(0);
    assert!(drawn(80, 24, &empty, &View::default())[1].contains("no node has a GPU"));
}
