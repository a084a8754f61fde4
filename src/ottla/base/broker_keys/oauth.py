"""SASL/OAUTHBEARER."""

from __future__ import annotations

from ottla.base.broker_keys.words import HIGH, LOW, NO_SASL
from ottla.base.setting_types import one_of_any_case
from ottla.base.settings import Boolean, ClassName, Int, Items, Long, OptionalText, Password, Settings, Text


class OAuthKeys(Settings):
    """SASL/OAUTHBEARER."""

    sasl_oauthbearer_assertion_algorithm = Text(
        "RS256",
        check=one_of_any_case("ES256", "RS256"),
        unused=NO_SASL,
        note="Algorithm that signs the assertion a client logs in with.",
    )
    sasl_oauthbearer_assertion_claim_aud = OptionalText(unused=NO_SASL, note="Audience claim of the assertion.")
    sasl_oauthbearer_assertion_claim_exp_seconds = Int(
        300, at_least=0, at_most=86_400, importance=LOW, unused=NO_SASL, note="Time for which an assertion is good."
    )
    sasl_oauthbearer_assertion_claim_iss = OptionalText(unused=NO_SASL, note="Issuer claim of the assertion.")
    sasl_oauthbearer_assertion_claim_jti_include = Boolean(
        False, unused=NO_SASL, note="Whether each assertion bears an id of its own."
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds = Int(
        60,
        at_least=0,
        at_most=3600,
        importance=LOW,
        unused=NO_SASL,
        note="How far before now an assertion's life begins.",
    )
    sasl_oauthbearer_assertion_claim_sub = OptionalText(unused=NO_SASL, note="Subject claim of the assertion.")
    sasl_oauthbearer_assertion_file = OptionalText(unused=NO_SASL, note="File that holds a finished assertion.")
    sasl_oauthbearer_assertion_private_key_file = OptionalText(
        unused=NO_SASL, note="File with the key that signs assertions."
    )
    sasl_oauthbearer_assertion_private_key_passphrase = Password(unused=NO_SASL, note="Secret that opens that file.")
    sasl_oauthbearer_assertion_template_file = OptionalText(
        unused=NO_SASL, note="File with more claims for assertions."
    )
    sasl_oauthbearer_client_credentials_client_id = OptionalText(note="Client id for the login server.")
    sasl_oauthbearer_client_credentials_client_secret = Password(note="Secret that goes with that client id.")
    sasl_oauthbearer_clock_skew_seconds = Int(
        30,
        importance=LOW,
        note="Difference of clocks that is forgiven when a token's times are checked.",
    )
    sasl_oauthbearer_expected_audience = Items(importance=HIGH, note="Audiences of which a token must name one.")
    sasl_oauthbearer_expected_issuer = OptionalText(importance=HIGH, note="Issuer that a token must come from.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms = Long(
        3_600_000, importance=LOW, note="Time between two fetches of the issuer's keys."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = Long(
        10_000, importance=LOW, note="Longest wait before a failed fetch of keys is tried again."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = Long(
        100, importance=LOW, note="First wait before a failed fetch of keys is tried again."
    )
    sasl_oauthbearer_jwks_endpoint_url = OptionalText(note="Where the issuer's keys are found.")
    sasl_oauthbearer_jwt_retriever_class = ClassName(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        unused=NO_SASL,
        note="Class that gets tokens.",
    )
    sasl_oauthbearer_jwt_validator_class = ClassName(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        unused=NO_SASL,
        note="Class that checks tokens.",
    )
    sasl_oauthbearer_scope = OptionalText(note="Scope to ask for.")
    sasl_oauthbearer_scope_claim_name = Text("scope", importance=LOW, note="Claim that holds the scope.")
    sasl_oauthbearer_sub_claim_name = Text("sub", importance=LOW, note="Claim that holds the subject.")
    sasl_oauthbearer_token_endpoint_url = OptionalText(note="Where tokens are asked for.")
