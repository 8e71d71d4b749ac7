//! Names beside the ends of lines, moved apart where they would overlap.

use super::canvas::{CHARACTER, Frame};
use super::names::shortened;
use super::palette;
use super::svg::{At, Svg};

/// Characters of a name beside a line; the legend has it whole.
const NAME_MAX: usize = 14;
/// Distance of two baselines.
const GAP: f64 = 13.0;
/// From the frame to the text.
const LEADER: f64 = 14.0;

/// The end of one run's line.
#[derive(Clone, Debug)]
pub(super) struct End {
    /// The run's place in the comparison.
    pub run: usize,
    /// The run's name.
    pub name: String,
    /// Where its line ends.
    pub x: f64,
    /// Where its line ends.
    pub y: f64,
}

/// Returns the room that labels need at the right of a frame, or nothing if they are too many.
pub(super) fn margin(names: &[String]) -> Option<f64> {
    let fits = names.len() as f64 * GAP <= 190.0;
    let longest = names.iter().map(|name| name.chars().count().min(NAME_MAX)).max()?;
    fits.then_some(LEADER + 6.0 + longest as f64 * CHARACTER)
}

/// Draws the names of the lines that end at `ends`, in ink, each led to by a line in its colour.
pub(super) fn draw(svg: &mut Svg, frame: Frame, ends: &[End]) {
    let mut order: Vec<&End> = ends.iter().collect();
    order.sort_by(|a, b| a.y.total_cmp(&b.y));
    let wanted: Vec<f64> = order.iter().map(|end| end.y).collect();
    for (end, y) in order.iter().zip(apart(&wanted, frame.top, frame.bottom)) {
        let (edge, text_x) = (frame.right + 2.0, frame.right + LEADER);
        let path = format!(
            "M{},{} {},{} {},{}",
            At(end.x),
            At(end.y),
            At(edge),
            At(end.y),
            At(text_x - 3.0),
            At(y)
        );
        svg.leaf(
            "path",
            &[("class", &"leader"), ("d", &path), ("stroke", &palette::colour(end.run))],
        );
        let name = shortened(&end.name, NAME_MAX);
        svg.text("text", &[("class", &"name"), ("x", &At(text_x)), ("y", &At(y + 4.0))], &name);
    }
}

/// Returns places for labels that want to be at `wanted` (ascending), at least [`GAP`] apart and, room
/// given, within `lo..=hi`.
fn apart(wanted: &[f64], lo: f64, hi: f64) -> Vec<f64> {
    let mut places: Vec<f64> = Vec::with_capacity(wanted.len());
    for want in wanted {
        let free_from = places.last().map_or(lo, |last| last + GAP);
        places.push(want.max(free_from));
    }
    let mut free_to = hi;
    for place in places.iter_mut().rev() {
        *place = place.min(free_to);
        free_to = *place - GAP;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap() {
        let places = apart(&[10.0, 11.0, 12.0, 100.0], 0.0, 100.0);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= GAP - 1e-9));
        assert!(places.iter().all(|place| (0.0..=100.0).contains(place)));
        assert_eq!(apart(&[5.0, 50.0], 0.0, 100.0), [5.0, 50.0]);
    }

    #[test]
    fn too_many_labels_are_left_to_the_legend() {
        assert!(margin(&vec!["x".to_owned(); 40]).is_none());
        assert!(margin(&[]).is_none());
    }
}
