//! Whether an expression of a selector holds, of nodes' and of labels' selectors alike. Pure.

/// * `operator`, `values` — of the expression; `value` — what the object has under its key.
pub(super) fn holds(operator: &str, values: &Option<Vec<String>>, value: Option<&String>) -> bool {
    let listed = |value: &String| values.iter().flatten().any(|one| one == value);
    let number = |text: &String| text.parse::<i64>().ok();
    let bound = values.iter().flatten().next().and_then(number);
    let value_number = value.and_then(number);
    match operator {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        // Of nodes alone (API reference, NodeSelectorRequirement).
        "Gt" => value_number.zip(bound).is_some_and(|(value, bound)| value > bound),
        "Lt" => value_number.zip(bound).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}
