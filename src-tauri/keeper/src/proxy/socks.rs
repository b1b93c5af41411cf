//! SOCKS 5 (RFC 1928): no authentication, CONNECT only.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, TcpStream},
};

use super::{
    connect::{Failure, Outside},
    greeting::Greeting,
    relay::relay,
};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const HOST_UNREACHABLE: u8 = 4;
const CONNECTION_REFUSED: u8 = 5;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_NOT_SUPPORTED: u8 = 8;

/// Serves one connection.
pub(super) fn serve(mut client: TcpStream, outside: &Outside) -> io::Result<()> {
    let spoken = client.try_clone()?;
    let mut spoken = Greeting::new(&spoken, outside.limits.greeting);
    let [version, count] = read(&mut spoken)?;
    if version != VERSION {
        return Ok(());
    }
    let mut methods = vec![0; usize::from(count)];
    spoken.read_exact(&mut methods)?;
    if !methods.contains(&NO_AUTHENTICATION) {
        return client.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]);
    }
    client.write_all(&[VERSION, NO_AUTHENTICATION])?;
    let [_, command, _, kind] = read(&mut spoken)?;
    let host = match kind {
        1 => Ipv4Addr::from(read::<4>(&mut spoken)?).to_string(),
        4 => Ipv6Addr::from(read::<16>(&mut spoken)?).to_string(),
        3 => {
            let [length] = read(&mut spoken)?;
            let mut name = vec![0; usize::from(length)];
            spoken.read_exact(&mut name)?;
            match String::from_utf8(name) {
                Ok(name) => name,
                Err(_) => return reply(&mut client, ADDRESS_NOT_SUPPORTED),
            }
        }
        _ => return reply(&mut client, ADDRESS_NOT_SUPPORTED),
    };
    let port = u16::from_be_bytes(read(&mut spoken)?);
    if command != CONNECT {
        return reply(&mut client, COMMAND_NOT_SUPPORTED);
    }
    match outside.connect(&host, port) {
        Ok(server) => {
            reply(&mut client, SUCCEEDED)?;
            relay(&client, &server, outside.limits.idle)
        }
        Err(failure) => reply(
            &mut client,
            match failure {
                Failure::Denied(_) => NOT_ALLOWED,
                Failure::NoSuchHost(_) => HOST_UNREACHABLE,
                Failure::Unreachable(_) => CONNECTION_REFUSED,
            },
        ),
    }
}

fn read<const N: usize>(client: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The address in it is of no use to anybody here.
fn reply(client: &mut TcpStream, code: u8) -> io::Result<()> {
    client.write_all(&[VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0])
}
