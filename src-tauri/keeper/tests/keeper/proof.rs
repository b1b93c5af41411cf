//! All attacks together, for `cargo xtask prove isolation`: how many there are, and that each failed.

use std::io::{Write, stdout};

use crate::{isolation, kernel, leftovers, reach, support::as_both_users};

macro_rules! attacks {
    ($($module:ident: $($attack:ident),+;)+) => {
        &[$($((stringify!($module), stringify!($attack), $module::$attack)),+),+]
    };
}

/// Where it is, what it is called, and how it is made.
type Attack = (&'static str, &'static str, fn());

/// Every test of these modules. Each makes its attack as every user there is.
const ATTACKS: &[Attack] = attacks! {
    isolation:
        homes_and_passwords_are_not_there,
        the_keepers_own_files_and_its_neighbours_are_not_there,
        nothing_but_workspace_home_and_tmp_can_be_written,
        every_other_mount_is_read_only_and_none_gives_rights_or_devices,
        what_is_kept_in_memory_has_a_size,
        nothing_can_be_mounted_or_mounted_again,
        no_capability_is_left_and_none_can_be_had,
        nobody_outside_is_seen_or_reached,
        init_cannot_be_looked_into,
        a_log_cannot_be_erased_by_who_writes_it,
        what_is_read_only_stays_so_and_what_it_links_to_is_not_there,
        a_program_cannot_be_replaced_through_whoever_runs_it,
        no_key_is_on_a_command_line,
        what_was_planted_leads_the_next_keeper_nowhere,
        nobody_survives_the_sandbox,
        a_path_that_would_open_the_jail_is_refused,
        memory_has_a_limit_where_no_cgroup_counts_it;
    kernel:
        the_kernel_does_not_even_look,
        init_cannot_be_traced_read_written_or_robbed_of_a_descriptor,
        no_device_is_there_or_can_be_made,
        the_kernels_own_memory_and_messages_cannot_be_read,
        a_program_that_runs_as_its_owner_runs_as_its_caller,
        limits_cannot_be_lifted,
        a_fork_bomb_ends_with_its_sandbox;
    leftovers:
        who_is_always_somebody_else_does_not_outlive_its_turn,
        no_variable_and_no_session_saves_what_a_turn_began,
        a_turn_ends_whatever_its_processes_say_of_themselves,
        nothing_moves_while_paused_however_it_hops;
    reach:
        a_service_on_this_machine_is_not_reached_by_any_way_or_name,
        without_a_network_not_even_a_public_address_is_reached,
        there_is_no_other_way_out_than_the_doors,
        an_abstract_socket_of_this_machine_is_not_reached,
        the_keychains_bus_and_the_keepers_own_socket_are_not_reached;
};

#[test]
fn no_attack_is_forgotten() {
    let sources = [
        ("isolation", include_str!("isolation.rs")),
        ("kernel", include_str!("kernel.rs")),
        ("leftovers", include_str!("leftovers.rs")),
        ("reach", include_str!("reach.rs")),
    ];
    for (module, source) in sources {
        let listed = ATTACKS.iter().filter(|attack| attack.0 == module).count();
        assert_eq!(listed, source.matches("#[test]").count(), "of {module}");
    }
}

#[test]
#[ignore = "long: cargo xtask prove isolation"]
fn every_attack_fails() {
    for (module, name, attack) in ATTACKS {
        eprintln!("{module}::{name}");
        attack();
    }
    // Each made its attack as this user and, where this user is root, as an unprivileged one.
    let users = as_both_users().len();
    // SAFETY: a system call without arguments that cannot fail.
    let own = if unsafe { libc::geteuid() } == 0 { "root" } else { "unprivileged" };
    for user in [own, "unprivileged"].into_iter().take(users) {
        let line = format!(
            r#"{{"name":"isolation/{user}","value":{},"unit":"attacks, all failed","against":null,"ratio":null}}"#,
            ATTACKS.len()
        );
        writeln!(stdout(), "{line}").unwrap();
    }
}
