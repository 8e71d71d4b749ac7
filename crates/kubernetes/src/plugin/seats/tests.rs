//! From what a claim was given to shares.

use super::super::devices::tests::offers;
use super::*;

fn booked(offers: &Offers, memory_mib: u64, compute_milli: u32) -> Given {
    Given {
        request: "gpu".into(),
        device: offers.cards[0].device.name.clone(),
        share_id: None,
        share: None,
        memory_bytes: Some(memory_mib * MIB),
        compute_milli: Some(compute_milli),
        booked: true,
        admin: false,
    }
}

fn said(sharing: &str) -> GpuShare {
    GpuShare { sharing: Some(sharing.into()), ..GpuShare::new() }
}

fn shares(given: &[Given], offers: &Offers) -> Result<Vec<Option<Share>>, String> {
    let seats = seats(given, offers, false).map_err(|error| error.to_string())?;
    Ok(seats.into_iter().map(|seat| seat.share).collect())
}

#[test]
fn what_is_booked_says_the_share_where_nobody_else_does() {
    let offers = offers("h100-80gb", 1);
    let all = offers.cards[0].memory_mib;
    let one = |given: Given| shares(&[given], &offers);
    let capped = |memory_mib, compute_milli| {
        Ok(vec![Some(Share::MemoryCapped { memory_mib, compute_milli })])
    };
    assert_eq!(one(booked(&offers, all, 0)), Ok(vec![Some(Share::Exclusive)]));
    assert_eq!(one(booked(&offers, all, 1000)), Ok(vec![Some(Share::Exclusive)]));
    assert_eq!(one(booked(&offers, 2048, 250)), capped(2048, 250));
    assert_eq!(one(booked(&offers, all, 500)), capped(all, 500));
    let nothing =
        Given { memory_bytes: None, compute_milli: None, booked: false, ..booked(&offers, 0, 0) };
    assert!(one(nothing.clone()).unwrap_err().contains("nothing says which share"));
    let old = seats(std::slice::from_ref(&nothing), &offers, true).unwrap();
    assert_eq!(old[0].share, Some(Share::Exclusive));
    let watcher = Given { admin: true, ..nothing };
    assert_eq!(one(watcher), Ok(vec![None]));
}

#[test]
fn the_controller_says_the_way_and_what_is_booked_the_amounts() {
    let offers = offers("h100-80gb", 1);
    let one = |share: GpuShare| {
        let given = Given { share: Some(share), ..booked(&offers, 2048, 250) };
        shares(&[given], &offers)
    };
    let more = GpuShare { memory_mib: Some(4096), compute_milli: Some(900), ..said("mps") };
    assert_eq!(one(more), Ok(vec![Some(Share::Mps { compute_milli: 250, memory_mib: 2048 })]));
    assert_eq!(one(said("time-slice")), Ok(vec![Some(Share::TimeSlice { memory_mib: 2048 })]));
    for (share, part) in [
        (said("exclusive"), "only a part of it is booked"),
        (said("halves"), "`halves` is no way of sharing"),
        (said("mig"), "the device is the whole card"),
    ] {
        let error = one(share).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn an_instance_is_known_by_its_device() {
    let offers = offers("h100-80gb", 1);
    let instance = &offers.cards[0].instances[3];
    let given = Given {
        device: instance.device.name.clone(),
        memory_bytes: None,
        booked: false,
        ..booked(&offers, 0, 0)
    };
    let own = Share::Mig { profile: instance.profile, start: instance.start };
    assert_eq!(shares(std::slice::from_ref(&given), &offers), Ok(vec![Some(own)]));
    let with = |share| shares(&[Given { share: Some(share), ..given.clone() }], &offers);
    assert_eq!(with(said("mig")), Ok(vec![Some(own)]));
    assert!(with(said("mps")).unwrap_err().contains("it is an instance"));
}

#[test]
fn parts_of_one_card_become_one_and_instances_stay_apart() {
    let offers = offers("h100-80gb", 2);
    let part = |memory_mib, milli| booked(&offers, memory_mib, milli);
    let sum = |memory_mib, compute_milli| {
        Ok(vec![Some(Share::MemoryCapped { memory_mib, compute_milli })])
    };
    assert_eq!(shares(&[part(1024, 100), part(2048, 200)], &offers), sum(3072, 300));
    assert_eq!(shares(&[part(1024, 100), part(2048, 0)], &offers), sum(3072, 0));
    let mps = Given { share: Some(said("mps")), ..part(1024, 100) };
    assert!(shares(&[mps.clone(), mps.clone()], &offers).unwrap_err().contains("two shares"));
    let elsewhere = Given { device: offers.cards[1].device.name.clone(), ..mps.clone() };
    assert!(shares(&[mps, elsewhere], &offers).unwrap_err().contains("one MPS daemon"));
    let instance = |at: usize| Given {
        device: offers.cards[0].instances[at].device.name.clone(),
        ..part(0, 0)
    };
    assert_eq!(shares(&[instance(0), instance(1)], &offers).unwrap().len(), 2);
    let unknown = Given { device: "gpu-9".into(), ..part(1, 0) };
    assert!(shares(&[unknown], &offers).unwrap_err().contains("no device gpu-9"));
}
